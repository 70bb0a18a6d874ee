"""One of the ranks of python_training_test.py: two steps of training with every method given, by one way of sharing the work.

    torchrun --nproc-per-node=2 python_ranks.py fully_shard|accelerate|accelerate_fsdp2|trainer_fsdp2|deepspeed OUT METHOD...

Ends with ssa whose numbers alone are trained, as tempera.apply leaves a model.
"""

import sys

import python_models as models
import tempera
import torch
import torch.distributed as dist

WAY, OUT, METHODS = sys.argv[1], sys.argv[2], sys.argv[3:]
IDS = models.tokens(2, 12)


def let_accelerate_shard_on_cpus():
    """Of ranks on CPUs accelerate makes DistributedDataParallel, FSDP2 configured or not. Told otherwise, its FSDP2 runs on them as on
    GPUs."""
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType
    plain = AcceleratorState.__init__

    def init(self, *args, fsdp_plugin=None, **options):
        plain(self, *args, fsdp_plugin=fsdp_plugin, **options)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = init


def assert_sharded(model):
    assert all(hasattr(parameter, "full_tensor") for parameter in model.parameters())


def prepared(model, optimizer):
    """The model and the optimizer of this rank, and what takes the gradients of a loss."""
    if WAY == "fully_shard":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        assert_sharded(model)
        return model, sgd(model), torch.Tensor.backward
    if WAY == "deepspeed":
        import deepspeed
        zero = {"stage": 3, "stage3_param_persistence_threshold": 0}
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={
            "train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False, "gradient_clipping": 0.0})  # it clips at 1 unless told otherwise
        assert all(parameter.numel() == 0 for parameter in model.parameters())
        return engine, engine, engine.backward
    from accelerate import Accelerator
    from accelerate.utils import FullyShardedDataParallelPlugin
    shards = WAY == "accelerate_fsdp2"
    accelerator = Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap", cpu_ram_efficient_loading=True) if shards else None)
    assert accelerator.num_processes == dist.get_world_size() and accelerator.is_fsdp2 == shards
    model, optimizer = accelerator.prepare(model, optimizer)
    if shards:
        assert_sharded(model)
    return model, optimizer, accelerator.backward


def sgd(model):
    return torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1)


def step_by_step(model):
    wrapped, optimizer, backward = prepared(model, sgd(model))
    ids, losses = IDS[dist.get_rank():dist.get_rank() + 1], []
    for _ in range(2):
        if optimizer is not wrapped:
            optimizer.zero_grad()
        loss = wrapped(ids, labels=ids, use_cache=False).loss
        backward(loss)
        optimizer.step()
        losses.append(loss.detach())
    total = torch.stack(losses)
    dist.all_reduce(total)
    return wrapped, total / dist.get_world_size()


def by_trainer(model, folder):
    import transformers
    trainer = transformers.Trainer(model, transformers.TrainingArguments(
        output_dir=folder, max_steps=2, per_device_train_batch_size=1, optim="sgd", learning_rate=0.1, lr_scheduler_type="constant",
        max_grad_norm=0.0, use_cpu=True, save_steps=2, logging_steps=1, report_to=[], disable_tqdm=True, fsdp=True,
        fsdp_config={"version": 2}), train_dataset=[{"input_ids": row, "labels": row} for row in IDS])
    trainer.train()
    assert_sharded(trainer.model)
    return trainer.model, torch.tensor([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])


def train(method, freeze):
    name = f"{OUT}/{method}{'-frozen' if freeze else ''}"
    model = models.stir(tempera.apply(models.make("llama"), method, freeze=freeze)).train()
    wrapped, losses = by_trainer(model, f"{name}.trainer") if WAY == "trainer_fsdp2" else step_by_step(model)
    tempera.save(wrapped, f"{name}.temps")
    folded = tempera.fold(wrapped).state_dict() if method == "head,value" else {}
    with tempera._model._gathered(model.parameters()):
        state = {name: value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in model.state_dict().items()}
        if dist.get_rank() == 0:
            torch.save({"losses": losses, "state": state, "folded": folded}, f"{name}.pt")


dist.init_process_group("gloo")
if WAY.endswith("_fsdp2"):
    let_accelerate_shard_on_cpus()
for way in METHODS:
    train(way, freeze=False)
train("ssa", freeze=True)
dist.barrier()
dist.destroy_process_group()
