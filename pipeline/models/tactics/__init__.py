"""Tactic models: prompts, training (SFT, GRPO with Lean's reward), generation in batches."""
