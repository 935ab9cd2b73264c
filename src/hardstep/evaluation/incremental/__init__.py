"""Changes carried through a record operation by operation; not for users."""
