"""Methods that prune each layer after the layers below it are pruned and repaired: OSSCAR and SlimLLM."""
