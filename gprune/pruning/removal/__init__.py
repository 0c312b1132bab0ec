"""Methods that decide on each layer above pruned and repaired ones: OSSCAR and SlimLLM."""
