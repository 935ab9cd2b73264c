"""Scripts that made records beside those of suites; each appends what is not recorded yet."""
