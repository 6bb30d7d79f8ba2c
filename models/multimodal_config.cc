#include "models/multimodal_config.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/hugging_face_values.h"

namespace meshwright {
namespace {

using config_json::BoolOr;
using config_json::Given;
using config_json::NotModelled;

// Maps of decoders: transformers', and those of models with code of their own (InternVL and Nemotron; DeepSeek-VL).
constexpr absl::string_view kTransformersMap = "text_config";
constexpr absl::string_view kDecoderMaps[] = {kTransformersMap, "llm_config", "language_config"};

// Of Qwen-Omni a model by itself, with a decoder in it; what speaks stands beside it.
constexpr absl::string_view kThinker = "thinker_config";

constexpr absl::string_view kOtherMaps[] = {"vision_config", "audio_config", "speech_config", "qformer_config",
                                            "perceiver_config"};

// A model around a decoder: the decoder's model_type where its map says none, and whether a file without such a map has
// the decoder's keys beside its own (as each configuration_*.py has it).
struct Around {
  absl::string_view model_type, decoder;
  bool flat = false;
  absl::string_view left_out = "";  // what its decoder does here, and a plan does not
};
constexpr Around kAround[] = {
    {"exaone4_5", "exaone4"},
    {"gemma3", "gemma3_text"},
    {"gemma4", "gemma4_text"},
    {"gemma4_unified", "gemma4_unified_text"},
    {"glm4v", "glm4v_text", true},
    {"glm4v_moe", "glm4v_moe_text", true},
    {"internvl", "qwen2"},
    {"kimi_k25", "deepseek_v3"},
    {"llama4", "llama4_text"},
    {"llava", "llama"},
    {"mistral3", "mistral"},
    {"muse_glimmer", "muse_glimmer_text"},
    {"paligemma", "gemma", false,
     "attention of the prefix (an image and its prompt) to all of itself is taken as causal"},
    {"qwen2_vl", "qwen2_vl_text", true},
    {"qwen2_5_vl", "qwen2_5_vl_text", true},
    {"qwen2_5_omni_thinker", "qwen2_5_omni_text"},
    {"qwen3_omni_moe_thinker", "qwen3_omni_moe_text"},
    {"qwen3_vl", "qwen3_vl_text"},
    {"qwen3_vl_moe", "qwen3_vl_moe_text"},
    {"qwen3_5", "qwen3_5_text"},
    {"qwen3_5_moe", "qwen3_5_moe_text"},
};

const Around* FindAround(absl::string_view model_type) {
  for (const Around& row : kAround) {
    if (row.model_type == model_type) return &row;
  }
  return nullptr;
}

const HuggingFaceFamily* FamilyOf(absl::string_view model_type) {
  for (const HuggingFaceFamily& row : HuggingFaceFamilies()) {
    if (row.model_type == model_type) return &row;
  }
  return nullptr;
}

// The model that is planned: the file's, or one in it.
NodeRef ModelIn(const NodeRef& file) {
  const bool has_thinker = FamilyOf(file["model_type"].text()) == nullptr && file[kThinker].is_map();
  return has_thinker ? file[kThinker] : file;
}

// `model_type` is what `at` says, or what its class takes it for.
absl::StatusOr<const HuggingFaceFamily*> FindFamily(const NodeRef& at, absl::string_view model_type) {
  if (const HuggingFaceFamily* family = FamilyOf(model_type)) return family;
  const absl::string_view what = WhatOthersHave(model_type);
  if (!what.empty()) return NotModelled(at, absl::StrCat("found ", QuoteForMessage(model_type), ": ", what));
  std::vector<absl::string_view> names;
  for (const HuggingFaceFamily& row : HuggingFaceFamilies()) names.push_back(row.model_type);
  return at.Locate(absl::UnimplementedError(
      absl::StrCat("found ", QuoteForMessage(model_type), ", wanted one of ", absl::StrJoin(names, ", "),
                   "; a decoder of another name but the same layers is written as "
                   "`architecture: {decoder: ..}`")));
}

void NoteOthers(const DecoderMap& map, std::vector<std::string>& notices) {
  std::vector<absl::string_view> others;
  for (const absl::string_view key : kOtherMaps) {
    if (map.root[key].is_map()) others.push_back(key);
  }
  if (others.empty() && map.in.Path() == map.root.Path()) return;
  const std::string what = others.empty() ? "what else the model has"
                                          : absl::StrCat(absl::StrJoin(others, ", "), " and ",
                                                         others.size() > 1 ? "their projectors" : "its projector");
  notices.push_back(absl::StrCat("the decoder alone is planned, without ", what));
}

}  // namespace

NodeRef DecoderMapOf(const NodeRef& file) {
  const NodeRef root = ModelIn(file);
  if (FamilyOf(root["model_type"].text()) != nullptr) return root;
  for (const absl::string_view key : kDecoderMaps) {
    if (root[key].is_map()) return root[key];
  }
  return root;
}

absl::StatusOr<DecoderMap> FindDecoder(const NodeRef& file, std::vector<std::string>& notices) {
  const NodeRef root = ModelIn(file);
  if (root.Path() != file.Path()) {
    notices.push_back(absl::StrCat(kThinker, " alone is planned, without what speaks"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string model_type, root["model_type"].AsString());
  DecoderMap map{root, DecoderMapOf(root)};
  const NodeRef own = map.in["model_type"];
  const Around* around = FindAround(model_type);
  if (map.in.Path() == root.Path()) {
    // Of those that are not flat the class takes sizes of its own, which no file says.
    if (around != nullptr && !around->flat) return root[kTransformersMap].Error("nothing", "the decoder's sizes");
    MESHWRIGHT_ASSIGN_OR_RETURN(map.family, FindFamily(own, around == nullptr ? model_type : around->decoder));
  } else if (Given(own)) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string decoder, own.AsString());
    MESHWRIGHT_ASSIGN_OR_RETURN(map.family, FindFamily(own, decoder));
  } else if (around != nullptr) {
    MESHWRIGHT_ASSIGN_OR_RETURN(map.family, FindFamily(own, around->decoder));
  } else {
    return own.Error("nothing", "the decoder's, such as llama");
  }
  NoteOthers(map, notices);
  if (around != nullptr && !around->left_out.empty()) notices.push_back(std::string(around->left_out));
  return map;
}

// Of transformers' own models release 5 reads it at the root, release 4 in the decoder's map.
absl::StatusOr<bool> ReadTied(const DecoderMap& map, std::vector<std::string>& notices) {
  constexpr absl::string_view kKey = "tie_word_embeddings";
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool inner, BoolOr(map.in[kKey], map.family->tied_by_default));
  if (map.in.key() != kTransformersMap) return inner;
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool tied, BoolOr(map.root[kKey], inner));
  if (tied != inner && Given(map.in[kKey])) {
    notices.push_back(absl::StrCat(kKey, " of ", kTransformersMap, " is left out: that of the file is another"));
  }
  return tied;
}

}  // namespace meshwright
