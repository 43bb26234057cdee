# SPDX-License-Identifier: BSD-3-Clause
"""How recipes are made: the command ``plan``. docs/recipes.md describes it.

Imports nothing by itself; the command's help needs no torch.
"""
