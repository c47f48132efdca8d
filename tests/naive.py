"""Reference implementations: every algorithm once more, slowly, in the words of the paper."""


