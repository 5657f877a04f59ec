#include "tune/probe.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "lower/lower.h"
#include "tune/site.h"
#include "values.h"

namespace forge::tune {
namespace {

// A route as a row of weights, one an expert: what order its choices have is the backend's.
std::vector<float> spread_routes(std::span<const float> words, int rows, const MoeSpec& moe) {
    const auto k = static_cast<std::size_t>(moe.per_token), experts = static_cast<std::size_t>(moe.experts);
    std::vector<float> dense(static_cast<std::size_t>(rows) * experts, 0.0f);
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
        for (std::size_t i = 0; i < k; ++i) {
            const std::uint32_t id = std::bit_cast<std::uint32_t>(words[row * 2 * k + i]);
            // An id that is none shows as a wrong row.
            dense[row * experts + std::min<std::size_t>(id, experts - 1)] += id < experts ? words[row * 2 * k + k + i] : NAN;
        }
    return dense;
}

}  // namespace

void LoweredPart::choose(const std::string& site, const VariantChoice& choice, std::span<const Weight> weights) {
    for (Launch& l : program.launches) {
        if (site_name(program, l, weights) != site) continue;
        std::erase_if(l.variants, [&](const VariantChoice& v) { return v.rows == choice.rows; });
        l.variants.push_back(choice);
    }
}

LoweredPart lower_part(const Backend& backend, const Subject& subject, std::span<const Weight> weights, const Part& part, int max_rows, int max_outputs) {
    LoweredPart lowered;
    LowerOptions options;
    options.type = subject.type;
    options.max_rows = max_rows;
    options.max_outputs = max_outputs;
    options.apart = true;
    lowered.program = lower(part.plan, subject.ropes, options, lower_target(backend, weights, subject.type, subject.capacity), &lowered.places);
    // Nothing is picked or copied after a step: the output is read from its place.
    lowered.program.vocab = 0;
    lowered.program.logits = {Space::arena, 0, 0, 64};
    lowered.program.logits_type = DType::f32;
    return lowered;
}

Probe::Probe(Backend& backend, const Subject& subject, const Part& part, const LoweredPart& lowered, std::span<const Weight> weights, std::shared_ptr<Cache> cache)
    : subject_(subject), part_(part), places_(lowered.places), arena_bytes_(lowered.program.arena_bytes), cache_(std::move(cache)),
      executable_(backend.compile(lowered.program, weights, cache_)) {}

void Probe::prepare(const Case& c) {
    std::vector<std::byte> image(arena_bytes_, std::byte{0xff});   // a NaN in every type
    for (std::size_t i = 0; i < part_.inputs.size(); ++i) {
        const auto value = static_cast<std::size_t>(part_.inputs[i].value);
        const DType type = part_.plan.values[value].type == ValueType::f32 ? DType::f32 : subject_.type;
        if (c.inputs[i].size() * size_of(type) > places_[value].bytes)
            fail(ErrorKind::internal, "a case gives {} elements of {}, which takes {} bytes", c.inputs[i].size(), part_.plan.values[value].name, places_[value].bytes);
        encode(type, c.inputs[i], image.data() + places_[value].offset);
    }
    executable_->write_arena(0, image);
}

Result Probe::run(const Case& c) {
    prepare(c);
    executable_->submit(c.step(next_serial()));
    executable_->wait();
    const auto output = static_cast<std::size_t>(part_.output());
    const Value& v = part_.plan.values[output];
    const DType type = v.type == ValueType::f32 ? DType::f32 : subject_.type;
    const auto rows = static_cast<std::size_t>(c.rows), cols = static_cast<std::size_t>(v.cols);
    std::vector<std::byte> bytes(rows * cols * size_of(type));
    executable_->read_arena(places_[output].offset, bytes);
    Result result;
    result.width = cols;
    result.values.resize(rows * cols);
    decode(type, bytes.data(), result.values);
    if (const RouteOp* route = part_.route()) {
        result.values = spread_routes(result.values, c.rows, route->moe);
        result.width = static_cast<std::size_t>(route->moe.experts);
    }
    if (part_.writes_keys) {
        const CacheLayer& l = subject_.layers[static_cast<std::size_t>(part_.kv_layer)];
        const auto head = static_cast<std::size_t>(l.head_dim), heads = static_cast<std::size_t>(l.n_kv_heads), width = result.width + 2 * heads * head;
        std::vector<float> all(rows * width);
        std::vector<std::byte> vector(head * size_of(subject_.type));
        for (std::size_t row = 0; row < rows; ++row) {
            std::copy_n(result.values.begin() + static_cast<std::ptrdiff_t>(row * result.width), result.width, all.begin() + static_cast<std::ptrdiff_t>(row * width));
            for (const bool values : {false, true})
                for (std::size_t h = 0; h < heads; ++h) {
                    cache_->read(part_.kv_layer, values, c.slots[row], static_cast<int>(h), c.positions[row], vector.data());
                    decode(subject_.type, vector.data(), std::span(all).subspan(row * width + result.width + (values ? heads * head : 0) + h * head, head));
                }
        }
        result.values = std::move(all);
        result.width = width;
    }
    if (part_.state_layer >= 0) {
        const CacheLayer& l = subject_.layers[static_cast<std::size_t>(part_.state_layer)];
        const std::size_t conv = static_cast<std::size_t>(std::max(0, l.conv_kernel - 1)) * static_cast<std::size_t>(l.conv_channels()), conv_bytes = conv * size_of(subject_.type);
        std::vector<std::byte> state(cache_->state_bytes());
        const std::size_t floats = conv + (state.size() - conv_bytes) / 4;
        result.state.resize(kSlots * floats);
        for (std::size_t slot = 0; slot < kSlots; ++slot) {
            cache_->read_state(static_cast<int>(slot), state.data());
            const std::span<float> to = std::span(result.state).subspan(slot * floats, floats);
            decode(subject_.type, state.data(), to.first(conv));
            decode(DType::f32, state.data() + conv_bytes, to.subspan(conv));
        }
    }
    return result;
}

}  // namespace forge::tune
