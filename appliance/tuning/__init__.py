"""Model tuning: which form of the model this computer computes fastest, within the owner's bound for its quality."""
