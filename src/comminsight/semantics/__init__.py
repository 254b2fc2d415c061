"""From unordered ops to training steps."""
