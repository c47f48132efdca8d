"""Foreign files to our records and back; one file per kind."""
