# SPDX-License-Identifier: BSD-3-Clause
"""``python -m open_vc_attn``: the program ``open-vc-attn``."""

from .cli import main

if __name__ == "__main__":
    main()
