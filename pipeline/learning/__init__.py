"""What the training of all models shares: configurations, checkpoints by id, frozen datasets, the jobs' frame.

The retriever (`pipeline.retrieval`), tactic models (`pipeline.tactics`) and the progress model (`pipeline.progress`)
build on it. Nothing here imports torch.
"""
