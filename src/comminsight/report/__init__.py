"""What people and programs read: text, JSON, messages. It formats and computes nothing."""
