# SPDX-License-Identifier: BSD-3-Clause
"""What a model's output sees of the numerics of its attention: the command ``quality``.

A small video transformer runs with exact attention and with any other numerics, this library's or
simulated ones. docs/quality.md defines what is measured. Only ``command`` can be imported without
torch.
"""
