"""Compares tempera eval with lm-eval's HF backend, example by example.

    lm_eval_parity.py TEMPERA MODEL DATA [--tasks piqa,...] [--limit N] [--batch N] [--threads N]

MODEL is anything that tempera reads; lm-eval gets the folder that `tempera export` makes of it. The prepared files in
DATA (query, choices, gold) are written with the fields of the original data sets, so that lm-eval's own task
definitions read them. Prints one line a task, with the CPU seconds of both; tempera's hold the loading of the model.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import tempfile
import time


def piqa(line):
    return {"goal": line["query"].removeprefix("Question: ").rstrip("\n"), "sol1": line["choices"][0],
            "sol2": line["choices"][1], "label": line["gold"]}


def labelled(line):
    labels = [chr(ord("A") + i) for i in range(len(line["choices"]))]
    return {"choices": {"text": line["choices"], "label": labels}, "answerKey": labels[line["gold"]]}


def arc(line):
    return {"question": line["query"].removeprefix("Question: "), **labelled(line)}


def openbookqa(line):
    return {"question_stem": line["query"], **labelled(line)}


def hellaswag(line):
    activity, _, context = line["query"].partition(": ")
    return {"activity_label": activity, "ctx_a": context, "ctx_b": "", "endings": line["choices"],
            "label": str(line["gold"])}


def winogrande(line):
    first, second = line["context_options"]
    shared = os.path.commonprefix([first, second])
    shared = shared[:shared.rfind(" ") + 1]
    return {"sentence": f"{shared}_ {line['continuation']}", "option1": first[len(shared):],
            "option2": second[len(shared):], "answer": str(line["gold"] + 1)}


def boolq(line):
    passage, _, question = line["query"].removeprefix("Passage: ").rpartition("\nQuestion: ")
    return {"passage": passage, "question": question.removesuffix("?"), "label": line["gold"]}


def copa(line):
    premise, _, connector = line["query"].rpartition(" ")
    kind = {"because": "cause", "therefore": "effect"}[connector]
    return {"premise": premise.rstrip(",") + ".", "question": kind, "choice1": line["choices"][0],
            "choice2": line["choices"][1], "label": line["gold"]}


# tempera's name: lm-eval's name, the prepared file, how its lines become those of the original
TASKS = {
    "piqa": ("piqa", "piqa.jsonl", piqa),
    "arc_easy": ("arc_easy", "arc_easy.jsonl", arc),
    "arc_challenge": ("arc_challenge", "arc_challenge.jsonl", arc),
    "hellaswag": ("hellaswag", "hellaswag_val_1000.jsonl", hellaswag),
    "winogrande": ("winogrande", "winogrande.jsonl", winogrande),
    "boolq": ("boolq", "boolq.jsonl", boolq),
    "openbookqa": ("openbookqa", "openbook_qa.jsonl", openbookqa),
    "copa": ("copa", "copa.jsonl", copa),
    "lambada": ("lambada_openai", "lambada_test_openai.jsonl", lambda line: line),
}


def original_lines(task, data, limit):
    _, name, convert = TASKS[task]
    with open(pathlib.Path(data) / name, encoding="utf-8") as file:
        for number, line in enumerate(file):
            if number == limit:
                return
            yield convert(json.loads(line))


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def child_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_tempera(tempera, model, task, file, threads=0):
    begin = child_seconds()
    done = subprocess.run([tempera, "eval", str(model), "--task", task, "--file", str(file), "--log-samples", "--json",
                           "--threads", str(threads)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout), child_seconds() - begin


def open_lm(folder, batch):
    from lm_eval.models.huggingface import HFLM
    return HFLM(pretrained=str(folder), dtype="float32", device="cpu", batch_size=batch)


def run_lm_eval(lm, task, file):
    import lm_eval
    from lm_eval.tasks import TaskManager
    manager = TaskManager()
    definition = manager.task_index[TASKS[task][0]].yaml_path
    own = file.with_suffix(".yaml")
    splits = "".join(f"\n    {split}: {file}" for split in ("train", "validation", "test"))
    own.write_text(f"include: {definition}\ndataset_path: json\ndataset_name: null\n"
                   f"dataset_kwargs:\n  data_files:{splits}\n", encoding="utf-8")
    begin = time.process_time()
    result = lm_eval.simple_evaluate(model=lm, tasks=[str(own)], task_manager=manager, log_samples=True,
                                     bootstrap_iters=0)
    return result, time.process_time() - begin


def compare(task, ours, theirs):
    """The largest difference of a log-likelihood, and how many texts, greedy flags and hits differ."""
    name = TASKS[task][0]
    mine = ours["samples"][task]
    other = sorted(theirs["samples"][name], key=lambda sample: sample["doc_id"])
    assert len(mine) == len(other)
    worst, texts, greedy, hits = 0.0, 0, 0, 0
    for a, b in zip(mine, other):
        texts += [tuple(pair) for pair in a["arguments"]] != [tuple(pair) for pair in b["arguments"]]
        for (score, flag), (expected, wanted) in zip(a["filtered_resps"], b["filtered_resps"]):
            worst = max(worst, abs(score - expected))
            greedy += flag != wanted
        hits += any(a[metric] != b[metric] for metric in ("acc", "acc_norm") if metric in b)
    return {"examples": len(mine), "worst": worst, "texts": texts, "greedy": greedy, "hits": hits}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tempera")
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([arguments.tempera, "export", arguments.model, "--out", str(folder / "model"), "--dtype", "fp32"], check=True,
                       capture_output=True)
        import torch
        torch.set_num_threads(arguments.threads)
        lm = open_lm(folder / "model", arguments.batch)
        for task in arguments.tasks.split(","):
            file = folder / f"{task}.jsonl"
            write_lines(file, original_lines(task, arguments.data, arguments.limit))
            ours, seconds = run_tempera(arguments.tempera, folder / "model", task, file, arguments.threads)
            theirs, their_seconds = run_lm_eval(lm, task, file)
            found = compare(task, ours, theirs)
            scores = {key: round(value, 4) for key, value in ours["results"][task].items()
                      if key in ("acc,none", "acc_norm,none", "perplexity,none")}
            print(f"{task}: {found}, {scores}, {seconds:.1f} s, lm-eval {their_seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
