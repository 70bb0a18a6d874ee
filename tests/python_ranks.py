"""One of the ranks of python_training_test.py: two steps of training with every method given, by one way of sharing the work.

    torchrun --nproc-per-node=2 python_ranks.py fully_shard|accelerate|deepspeed OUT METHOD...
"""

import sys

import python_models as models
import tempera
import torch
import torch.distributed as dist

WAY, OUT, METHODS = sys.argv[1], sys.argv[2], sys.argv[3:]


def prepared(model, optimizer):
    """The model and the optimizer of this rank, and what takes the gradients of a loss."""
    if WAY == "fully_shard":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        assert all(hasattr(parameter, "full_tensor") for parameter in model.parameters())
        return model, torch.optim.SGD(model.parameters(), lr=0.1), torch.Tensor.backward
    if WAY == "deepspeed":
        import deepspeed
        zero = {"stage": 3, "stage3_param_persistence_threshold": 0}
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={
            "train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False})
        assert all(parameter.numel() == 0 for parameter in model.parameters())
        return engine, engine, engine.backward
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == dist.get_world_size()
    return *accelerator.prepare(model, optimizer), accelerator.backward


def train(method):
    model = models.stir(tempera.apply(models.make("llama"), method, freeze=False)).train()
    wrapped, optimizer, backward = prepared(model, torch.optim.SGD(model.parameters(), lr=0.1))
    ids = models.tokens(2, 12)[dist.get_rank():dist.get_rank() + 1]
    for _ in range(2):
        if optimizer is not wrapped:
            optimizer.zero_grad()
        backward(wrapped(ids, labels=ids, use_cache=False).loss)
        optimizer.step()
    tempera.save(model, f"{OUT}/{method}.temps")
    with tempera._model._gathered(model.parameters()):
        state = {name: value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in model.state_dict().items()}
        if dist.get_rank() == 0:
            torch.save(state, f"{OUT}/{method}.pt")


dist.init_process_group("gloo")
for name in METHODS:
    train(name)
dist.barrier()
dist.destroy_process_group()
