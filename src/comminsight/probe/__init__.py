"""What looks at this machine: facts are gathered in one file each, and judged in ``checks``."""
