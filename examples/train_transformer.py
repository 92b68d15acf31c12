"""Trains a small language model of the `transformers` package, its gradients compressed by DGC.

    torchrun --nproc-per-node 4 examples/train_transformer.py --arch llama --density 0.05

Architectures are llama, opt and gemma2, in small sizes and with random parameters: nothing is
downloaded, and the text is the documentation and the source of the installed Python. Needs
examples/requirements-transformers.txt.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import zensync
from common import corpus

VOCABULARY = 4000
LENGTH = 64


def main() -> None:
    options = parse()
    dist.init_process_group("gloo")
    torch.manual_seed(options.seed)
    model = DistributedDataParallel(new_model(options.arch, options.width, options.layers))
    state = zensync.State(scheme=options.scheme, compressor=compressor(options))
    model.register_comm_hook(state, zensync.hook)

    text = corpus.read(VOCABULARY)
    held_out, text = text[: 100 * LENGTH].view(-1, LENGTH), text[100 * LENGTH :]
    generator = torch.Generator().manual_seed(1000 * options.seed + dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    started = time.perf_counter()
    for iteration in range(1, options.iterations + 1):
        starts = torch.randint(len(text) - LENGTH, (options.sequences, 1), generator=generator)
        optimizer.zero_grad()
        loss_of(model, text[starts + torch.arange(LENGTH)]).backward()
        optimizer.step()
        if iteration % options.report_every == 0 and dist.get_rank() == 0:
            with torch.no_grad():
                loss = float(loss_of(model.module, held_out))
            seconds = (time.perf_counter() - started) / iteration
            print(f"iteration {iteration}: held-out loss {loss:.4f}, {1e3 * seconds:.0f} ms each")
    if dist.get_rank() == 0:
        print(state.summary())
    state.close()
    dist.destroy_process_group()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", choices=("llama", "opt", "gemma2"), default="llama")
    parser.add_argument("--density", type=float, default=0.05, help="1 is plain DDP, lossless")
    parser.add_argument(
        "--scheme", choices=["auto", *zensync.schemes()], default="balanced_parallelism"
    )
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--report-every", type=int, default=20)
    parser.add_argument("--sequences", type=int, default=4, help="per rank and iteration")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def compressor(options: argparse.Namespace) -> zensync.DGC | None:
    return None if options.density == 1 else zensync.DGC(options.density)


def new_model(arch: str, width: int, layers: int) -> nn.Module:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    common = {
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "max_position_embeddings": 2 * LENGTH,
    }
    if arch == "opt":
        config = transformers.OPTConfig(**common, ffn_dim=4 * width, word_embed_proj_dim=width)
        model: nn.Module = transformers.OPTForCausalLM(config)
        return model
    grouped = {**common, "intermediate_size": 3 * width, "num_key_value_heads": 2}
    if arch == "llama":
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**grouped))
        return model
    config = transformers.Gemma2Config(**grouped, head_dim=width // 4, sliding_window=LENGTH)
    model = transformers.Gemma2ForCausalLM(config)
    return model


def loss_of(model: nn.Module, text: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=text, use_cache=False).logits
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), text[:, 1:].flatten())


if __name__ == "__main__":
    main()
