"""Made the .pt files of this folder with torch 2.13.0 (CPU); the tests need no torch.

Run it in a folder of its own: `python make_shards.py`. Every file holds the same five blocks of
four drafts, logits (row * 4 + position - 10) / 4, accepted 0, 4, 2, 1, 3; only the way the tensors
lie in their storages differs.
"""

import torch

ACCEPTED = torch.tensor([0, 4, 2, 1, 3])
LOGITS = (torch.arange(20, dtype=torch.float32).reshape(5, 4) - 10) / 4
MASK = (torch.arange(4) < ACCEPTED[:, None]).float()


def save(name, logits=LOGITS, mask=MASK, **options):
    """Write one shard."""
    torch.save({"logits": logits, "prefix_mask": mask}, name, **options)


save("contiguous.pt")
save("protocol4.pt", pickle_protocol=4)
save("legacy.pt", _use_new_zipfile_serialization=False)
save("transposed.pt", LOGITS.T.contiguous().T, MASK.T.contiguous().T)

wide = torch.full((8, 9), 99.0)
wide[2:7, 3:7] = LOGITS
save("sliced.pt", wide[2:7, 3:7], MASK)
save("every_second.pt", LOGITS.repeat_interleave(2, dim=1)[:, ::2], MASK)

both = torch.cat([LOGITS, MASK])
save("one_storage.pt", both[:5], both[5:])

save("half.pt", LOGITS.half(), MASK.bool())
save("bfloat16.pt", LOGITS.bfloat16(), MASK.to(torch.int64))
save("double.pt", LOGITS.double(), MASK.to(torch.uint8))
save("expanded.pt", torch.zeros(1, 4).expand(5, 4), MASK)
save("empty.pt", LOGITS[:0], MASK[:0])

stats = dict.fromkeys(("recorded", "no_snapshot", "stale_stamp", "row_out_of_range"), 0)
meta = {"pairing": "draft_seq_ring", "block_size": 4, "stats": stats | {"recorded": 5}}
torch.save({"meta": meta, "prefix_mask": MASK, "logits": LOGITS}, "with_meta.r0.0.pt")
torch.save({"logits": torch.nn.Parameter(LOGITS), "prefix_mask": MASK}, "parameter.pt")
torch.save({"logits": LOGITS}, "no_mask.pt")
torch.save([LOGITS, MASK], "list.pt")
