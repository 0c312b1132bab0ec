"""Recovery: a pruned and repaired model learns from the dense one, by changes of low rank (LoRA)."""
