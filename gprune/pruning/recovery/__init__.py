"""Recovery: distil the dense model into a pruned and repaired model with low-rank adapters (LoRA)."""
