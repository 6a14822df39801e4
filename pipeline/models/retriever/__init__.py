"""Premise retrieval that learns for life: datasets, training with EWC, an index, evaluation, promotion."""
