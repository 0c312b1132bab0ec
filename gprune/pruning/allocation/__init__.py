"""How the baselines of section 4 turn scores into a decision: FLAP's single ranking, Wanda-sp's one ratio."""
