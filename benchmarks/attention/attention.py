"""What bench_attention measures, of PyTorch's scaled_dot_product_attention: attention.py [repeats]"""

import sys
import time

import torch

SHAPES = [(16, 256, 6, 6, 64), (1, 1024, 12, 12, 64), (4, 1024, 12, 12, 64), (1, 2048, 12, 12, 64), (1, 2048, 12, 4, 64), (1, 2048, 6, 6, 128)]


def measure(dtype, B, T, H, K, C, repeats):
    def heads(num_heads):
        return torch.randn(B, T, num_heads, C, dtype=dtype).transpose(1, 2).requires_grad_()

    q, k, v = heads(H), heads(K), heads(K)
    dout = heads(H).detach()
    forward, backward = [], []
    for _ in range(repeats):
        start = time.thread_time()
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != K)
        middle = time.thread_time()
        out.backward(dout)
        forward.append(middle - start)
        backward.append(time.thread_time() - middle)
        q.grad = k.grad = v.grad = None
    flops = 2.0 * B * H * C * T * (T + 1)
    return [(min(forward), flops), (min(backward), 2.5 * flops)]


def main():
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch.set_num_threads(1)
    print(f"PyTorch {torch.__version__}")
    for dtype in (torch.float32, torch.bfloat16):
        for shape in SHAPES:
            columns = [f"{1e3 * seconds:8.2f} ms {flops / seconds / 1e9:6.1f} GFLOP/s" for seconds, flops in measure(dtype, *shape, repeats)]
            print(f"{str(dtype)[6:]:8}", *(f"{n:5}" for n in shape), "  ", "   ".join(columns))


if __name__ == "__main__":
    main()
