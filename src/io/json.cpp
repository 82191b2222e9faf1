// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/json.hpp"

#include <set>
#include <vector>

#include "pleat/base/error.hpp"

namespace pleat::io {

namespace {

using nlohmann::json;

/// Walks the text once before a tree is built of it: the tree would keep the last of two
/// equal keys without a word, and take whatever depth it is given.
class Guard final : public nlohmann::json_sax<json> {
 public:
  explicit Guard(std::size_t depth) : depth_(depth) {}
  const std::string& complaint() const { return complaint_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool key(string_t& key) override {
    if (keys_.back().insert(key).second) return true;
    complaint_ = fmt::format("the key '{}' occurs twice", key);
    return false;
  }
  bool parse_error(std::size_t, const std::string&,
                   const json::exception& error) override {
    const std::string text = error.what();
    const std::size_t begin =
        text.find("] ");  // after "[json.exception.parse_error.101]"
    complaint_ = begin == std::string::npos ? text : text.substr(begin + 2);
    return false;
  }

 private:
  bool enter() {
    keys_.emplace_back();
    if (keys_.size() <= depth_) return true;
    complaint_ = fmt::format("nested deeper than {} levels", depth_);
    return false;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  std::size_t depth_;
  std::vector<std::set<std::string>> keys_;
  std::string complaint_;
};

}  // namespace

json parse_json(std::string_view text, const std::string& place, std::size_t depth) {
  Guard guard(depth);
  const bool sound = json::sax_parse(text, &guard);
  PLEAT_REQUIRE(sound, InputError, "PL0401", "{} is not valid JSON: {}", place,
                guard.complaint());
  json tree = json::parse(text);
  PLEAT_REQUIRE(tree.is_object(), InputError, "PL0401", "{}: expected a JSON object",
                place);
  return tree;
}

}  // namespace pleat::io
