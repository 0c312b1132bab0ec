"""The tabs Speed and Export."""
