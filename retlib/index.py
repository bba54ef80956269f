"""placeholder until the index module lands"""
import numpy as np
import torch


class _Exact:
    def __init__(self, v):
        self.v = torch.from_numpy(np.ascontiguousarray(v))

    def search(self, q, k):
        s, r = [], []
        for i in range(0, len(q), 512):
            a, b = (torch.from_numpy(q[i : i + 512]) @ self.v.T).topk(min(k, len(self.v)))
            s.append(a.numpy())
            r.append(b.numpy())
        return np.concatenate(s), np.concatenate(r)


def build(factory, vectors, **_):
    return _Exact(vectors)
