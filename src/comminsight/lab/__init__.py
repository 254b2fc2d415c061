"""Real torch.distributed jobs with known truth."""
