"""How fast policies play."""
