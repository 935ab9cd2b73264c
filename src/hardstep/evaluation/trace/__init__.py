"""What a forward pass did, operation by operation; not for users."""
