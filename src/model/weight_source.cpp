#include "model/weight_source.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "load.h"
#include "packed.h"
#include "quant/tiles.h"
#include "read_spec.h"
#include "resolve.h"

namespace forge {
namespace {

bool is_expert(Role role) { return role == Role::expert_gate || role == Role::expert_up || role == Role::expert_down; }

}  // namespace

struct WeightSource::State {
    const ModelFile* file = nullptr;
    Draft draft;
    Resolution resolution;
    std::unordered_set<std::string> used;
};

WeightSource::WeightSource(const ModelFile& file) : state_(new State{&file, read_draft(file), {}, {}}) {
    State& s = *state_;
    s.resolution = resolve_tensors(s.draft);
    if (file.tensors.empty()) fail("{} holds no tensors", file.path);
    if (!s.resolution.missing.empty()) fail("{}: {} tensors are missing, the first is {}", file.path, s.resolution.missing.size(), s.resolution.missing.front());
    for (const TensorUse& use : s.resolution.uses) {
        s.used.insert(use.tensor->name);
        if (!use.quantised) continue;
        s.used.insert(use.quantised->scales->name);
        if (use.quantised->biases) s.used.insert(use.quantised->biases->name);
    }
}

WeightSource::~WeightSource() = default;

const ModelSpec& WeightSource::spec() const { return state_->draft.spec; }

bool WeightSource::is_beside(const Tensor& tensor) const { return !state_->used.contains(tensor.name); }

std::vector<WeightPart> WeightSource::parts() const {
    const ModelSpec& spec = state_->draft.spec;
    std::vector<bool> taken(state_->resolution.uses.size(), false);
    const auto take = [&](WeightPart& part, WeightId id) {
        if (id < 0 || taken[static_cast<std::size_t>(id)]) return;
        taken[static_cast<std::size_t>(id)] = true;
        part.weights.push_back(id);
    };
    std::vector<WeightPart> parts(1);
    parts[0].name = "embedding";
    for (const WeightId id : {spec.embed, spec.ple_embed, spec.ple_proj, spec.ple_norm}) take(parts[0], id);
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
        const LayerSpec& layer = spec.layers[i];
        WeightPart part{fmt::format("layer.{}", i), {}};
        for (std::size_t r = 0; r < layer.weights.size(); ++r) {
            const auto role = static_cast<Role>(r);
            for (int e = 0; e < (is_expert(role) && layer[role] >= 0 ? layer.feed_forward.moe.experts : 1); ++e) take(part, layer[role] < 0 ? -1 : layer[role] + e);
        }
        parts.push_back(std::move(part));
    }
    WeightPart head{"head", {}};
    for (const WeightId id : {spec.final_norm, spec.head}) take(head, id);
    for (std::size_t i = 0; i < taken.size(); ++i) take(head, static_cast<WeightId>(i));
    parts.push_back(std::move(head));
    return parts;
}

Weight WeightSource::rows(WeightId id, std::int64_t first, std::int64_t last, WeightLayout layout, ThreadPool& pool) const {
    const TensorUse& whole = state_->resolution.uses[static_cast<std::size_t>(id)];
    if (state_->file->packed) return packed_rows(*state_->file, whole, first, whole.as_f32 ? whole.rows : last, layout);
    TensorUse use = whole;
    if (!use.as_f32) {
        use.rows = last - first;
        if (use.row_map.empty()) {
            use.first_row += first;
        } else {
            use.row_map.assign(whole.row_map.begin() + first, whole.row_map.begin() + last);
        }
    }
    return load_weight(*state_->file, use, pool, layout);
}

PackedWeight WeightSource::describe(WeightId id, WeightLayout layout, ThreadPool& pool) const {
    const TensorUse& use = state_->resolution.uses[static_cast<std::size_t>(id)];
    // A few rows tell format and layout.
    const Weight few = rows(id, 0, use.rows < 2 * kTiledRows ? use.rows : kTiledRows, layout, pool);
    PackedWeight out;
    out.key = packed_key(use);
    out.format = few.format;
    out.rows = use.rows;
    out.cols = use.cols;
    out.tiled = few.tiled;
    out.global_scale = few.global_scale;
    out.planes = packed_planes(out.format, out.rows, out.cols, out.tiled);
    return out;
}

std::uint64_t WeightSource::source_bytes(WeightId id) const {
    const TensorUse& use = state_->resolution.uses[static_cast<std::size_t>(id)];
    if (state_->file->packed) return packed_bytes(*state_->file, use);
    const Tensor& tensor = *use.tensor;
    if (tensor.elements() <= 0) return 0;
    return static_cast<std::uint64_t>(static_cast<double>(tensor.data.size()) * static_cast<double>(use.rows) * static_cast<double>(use.cols) /
                                      static_cast<double>(use.quantised ? tensor.rows() * use.cols : tensor.elements()));
}

std::vector<std::string> WeightSource::modules() const {
    const ModelSpec& spec = state_->draft.spec;
    std::vector<std::string> modules(state_->resolution.uses.size());
    const auto set = [&](WeightId id, std::string name) {
        if (name.ends_with(".weight")) name.resize(name.size() - 7);
        if (id >= 0 && !state_->resolution.uses[static_cast<std::size_t>(id)].as_f32) modules[static_cast<std::size_t>(id)] = std::move(name);
    };
    for (std::size_t i = 0; i < spec.layers.size(); ++i)
        for (const TensorRow& row : state_->draft.family->tensors) {
            const bool expert = is_expert(row.role);
            std::string name(row.hf);
            if (const std::size_t number = name.find("experts.{}."); number != std::string::npos)
                name.replace(number, std::string::npos, fmt::format("switch_mlp.{}_proj", row.role == Role::expert_gate ? "gate" : row.role == Role::expert_up ? "up" : "down"));
            const WeightId first = spec.layers[i][row.role];
            for (int e = 0; first >= 0 && e < (expert ? spec.layers[i].feed_forward.moe.experts : 1); ++e) set(first + e, fmt::format("model.layers.{}.{}", i, name));
        }
    set(spec.head, "lm_head");
    set(spec.embed, "model.embed_tokens");  // also where the head is the embedding
    set(spec.ple_embed, "model.embed_tokens_per_layer");
    set(spec.ple_proj, "model.per_layer_model_projection");
    return modules;
}

}  // namespace forge
