"""A closed-loop replay of logged blocks with the policies an engine would run."""
