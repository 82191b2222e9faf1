// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/deck_keys.hpp"

#include "deck_keys_sections.hpp"

namespace pleat::train {

DeckFields::DeckFields() {
  // A deck that says nothing of experts has none.
  config.model.moe.experts = 0;
}

io::DeckKeys declare_deck_keys(DeckFields& fields) {
  io::DeckKeys keys;
  declare_run_keys(keys, fields.config);
  declare_model_keys(keys, fields);
  declare_moe_keys(keys, fields);
  declare_parallel_keys(keys, fields.config.parallel);
  declare_batch_keys(keys, fields.config.batch);
  declare_optimizer_keys(keys, fields.config.optimizer);
  declare_precision_keys(keys, fields.config.precision);
  declare_data_keys(keys, fields.config.data);
  declare_output_keys(keys, fields.config);
  return keys;
}

}  // namespace pleat::train
