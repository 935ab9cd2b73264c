"""What is known about single aten operators: how a change passes through them."""
