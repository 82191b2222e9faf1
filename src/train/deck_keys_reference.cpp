// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The documentation of decks, generated from the declarations.
#include "pleat/io/deck.hpp"
#include "pleat/train/deck_keys.hpp"

namespace pleat::train {
namespace {

constexpr const char* kIntroduction =
    R"(<!-- Written by `pleat params --markdown`; change the declarations, not this file. -->
# Input decks

A deck is a [TOML](https://toml.io) file. `pleat train DECK` runs it, `pleat check DECK`
reads and checks it without running, `pleat params` prints this page's tables.

- **Keys** stand under their section: `[optimizer]`, then `lr = 1e-3`. Keys of a group
  are written `aux_loss.coeff = 0.01` under `[moe]`, or `coeff = 0.01` under
  `[moe.aux_loss]`.
- **Mistakes end the run before it begins** (exit code 2): unknown or repeated keys,
  wrong types, values out of range, keys that contradict each other. The message names
  file and line, what was found and what was expected, and the nearest spelling.
- **Numbers**: an integer may stand for a number with a fraction (`clip = 1`), not the
  other way round (`steps = 1e3` is refused). `nan` and `inf` are refused everywhere.
- **A single value stands for a list of one**: `path = "book.txt"`.
- **Command line**: `pleat train DECK optimizer.lr=1e-3 moe.aux_loss.coeff=0.01`
  replaces what the deck says; of several for one key the last one counts. The value is
  TOML, or a bare word for a text: `run.name=trial`. Lists need quotes for the shell:
  `'data.path=["a", "b"]'`.
- **Input files** (`model.init`, `data.path`, `data.tokenizer`, `checkpoint.resume`) are
  looked for in the folder of the deck first, then in the working directory.
  `run.output` is relative to the working directory.
- **The resolved deck**: every run writes its deck with all keys and overrides into its
  output folder and into each checkpoint; it can be run again as it is.
- **Restart** tells what a run that continues from a checkpoint (`checkpoint.resume`)
  makes of a key whose value is not the one that the checkpoint was written with. *free*:
  one line of the log names what changed. *warns*: the run goes on with the new value, and
  a warning says that it is no longer the run that was begun. *refused*: the run ends
  before it begins (exit code 2, PL0732) and lists all differences, since another model or
  data order is a new run. Values are compared, not their spelling: `1e-3` is `0.001`. A
  file of the same name in another folder was probably moved: one class less. A key that
  an older version did not know had its default.

)";

}  // namespace

std::string deck_reference_markdown() {
  DeckFields fields;
  return kIntroduction + io::describe_keys_markdown(declare_deck_keys(fields));
}

std::string deck_reference() {
  DeckFields fields;
  return io::describe_keys(declare_deck_keys(fields));
}

}  // namespace pleat::train
