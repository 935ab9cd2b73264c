"""Tables and figures of README.md and docs/, written from records."""
