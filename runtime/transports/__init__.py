"""How one rank's data reaches another: `local` (threads, numpy), `torch_p2p` (any torch process group)."""
