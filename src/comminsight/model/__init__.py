"""What an op, communicator, step, measure and verdict *are*: values, no behaviour."""
