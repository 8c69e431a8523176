"""The policy: a small Qwen3-VL (or a real checkpoint), its tokenizer, template and eyes.

Nothing is imported here, so that arithmetic on sizes and tokens costs no torch.
"""
