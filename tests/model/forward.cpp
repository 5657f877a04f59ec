#include "forward.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>

namespace forge::test {
namespace {

using Row = std::vector<double>;

class Forward {
  public:
    explicit Forward(const BoundModel& model) : model_(model), spec_(model.spec) {}

    std::vector<double> run(const std::vector<int>& ids) {
        std::vector<double> logits;
        keys_.resize(spec_.layers.size());
        conv_.resize(spec_.layers.size());
        states_.resize(spec_.layers.size());
        values_.resize(spec_.layers.size());
        for (std::size_t position = 0; position < ids.size(); ++position) {
            Row x = row_of(spec_.embed, ids[position]);
            for (double& value : x) value *= spec_.embed_scale;
            const Row ple = spec_.ple_width > 0 ? per_layer_inputs(ids[position], x) : Row();
            for (std::size_t i = 0; i < spec_.layers.size(); ++i) step(i, x, position, ple);
            Row out = product(spec_.head, norm(x, spec_.final_norm, spec_.norm));
            if (spec_.final_softcap > 0)
                for (double& value : out) value = spec_.final_softcap * std::tanh(value / spec_.final_softcap);
            logits.insert(logits.end(), out.begin(), out.end());
        }
        return logits;
    }

  private:
    const Weight& weight(WeightId id) const { return model_.weights.at(static_cast<std::size_t>(id)); }

    // All rows of a weight, decoded once.
    const Row& matrix(WeightId id) const {
        Row& rows = decoded_[id];
        const Weight& w = weight(id);
        std::vector<float> values(static_cast<std::size_t>(w.cols));
        for (std::int64_t r = 0; rows.size() < static_cast<std::size_t>(w.rows * w.cols); ++r) {
            decode_row(w, r, values.data());
            rows.insert(rows.end(), values.begin(), values.end());
        }
        return rows;
    }

    Row row_of(WeightId id, std::int64_t row) const {
        const auto first = matrix(id).begin() + static_cast<std::ptrdiff_t>(row * weight(id).cols);
        return Row(first, first + static_cast<std::ptrdiff_t>(weight(id).cols));
    }

    Row product(WeightId id, const Row& x) const {
        if (static_cast<std::int64_t>(x.size()) != weight(id).cols) throw std::logic_error("widths differ");
        Row out;
        const double* w = matrix(id).data();
        for (std::int64_t r = 0; r < weight(id).rows; ++r) {
            double sum = 0;
            for (std::size_t i = 0; i < x.size(); ++i) sum += *w++ * x[i];
            out.push_back(sum);
        }
        return out;
    }

    Row linear(const LayerSpec& layer, Role role, Role bias, const Row& x) const {
        Row out = product(layer[role], x);
        if (layer[bias] >= 0) {
            const Row b = row_of(layer[bias], 0);
            for (std::size_t i = 0; i < out.size(); ++i) out[i] += b.at(i);
        }
        return out;
    }

    Row norm(const Row& x, WeightId id, const NormSpec& kind) const {
        const Row w = id >= 0 ? row_of(id, 0) : Row(x.size(), kind.kind == NormKind::one_plus ? 0.0 : 1.0);
        double squares = 0;
        for (const double value : x) squares += value * value;
        const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kind.eps);
        Row out;
        for (std::size_t i = 0; i < x.size(); ++i)
            out.push_back(x[i] * scale * (kind.kind == NormKind::one_plus ? 1 + w.at(i) : w.at(i)));
        return out;
    }

    void rotate(Row& x, std::size_t first, const RopeSpec& rope, std::size_t position) const {
        const std::size_t half = rope.inv_freq.size();
        for (std::size_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(position) * static_cast<double>(rope.inv_freq[i]);
            const double c = std::cos(angle) * rope.scale, s = std::sin(angle) * rope.scale;
            const double a = x[first + i], b = x[first + half + i];
            x[first + i] = a * c - b * s;
            x[first + half + i] = b * c + a * s;
        }
    }

    // Norm per head, if there is one, and rotation.
    void prepare(Row& x, int heads, const LayerSpec& layer, Role norm_role, std::size_t position) const {
        const AttentionSpec& a = layer.attention;
        const auto width = static_cast<std::size_t>(a.head_dim);
        for (std::size_t h = 0; h < static_cast<std::size_t>(heads); ++h) {
            if (a.qk_norm) {
                const auto begin = x.begin() + static_cast<std::ptrdiff_t>(h * width);
                const Row head(begin, begin + static_cast<std::ptrdiff_t>(width));
                const Row normed = norm(head, layer[norm_role], spec_.qk_norm);
                std::copy(normed.begin(), normed.end(), begin);
            }
            rotate(x, h * width, spec_.ropes.at(static_cast<std::size_t>(a.rope)), position);
        }
    }

    // Splits rows that hold a query and a gate for every head.
    static Row split(const Row& both, std::size_t width, bool second) {
        Row out;
        for (std::size_t at = second ? width : 0; at < both.size(); at += 2 * width)
            out.insert(out.end(), both.begin() + static_cast<std::ptrdiff_t>(at), both.begin() + static_cast<std::ptrdiff_t>(at + width));
        return out;
    }

    Row values_of(const LayerSpec& layer, const Row& x, const Row& raw_keys) const {
        const AttentionSpec& a = layer.attention;
        Row v = a.v_from_k ? raw_keys : linear(layer, Role::attn_v, Role::attn_v_bias, x);
        if (!a.v_norm) return v;
        const auto width = static_cast<std::ptrdiff_t>(a.head_dim);
        for (auto at = v.begin(); at != v.end(); at += width) {
            const Row normed = norm(Row(at, at + width), -1, {NormKind::one_rounding, spec_.norm.eps});
            std::copy(normed.begin(), normed.end(), at);
        }
        return v;
    }

    Row attention(std::size_t index, const Row& x, std::size_t position) {
        const LayerSpec& layer = spec_.layers[index];
        const AttentionSpec& a = layer.attention;
        Row q = linear(layer, Role::attn_q, Role::attn_q_bias, x), gate;
        if (a.gated) {
            gate = split(q, static_cast<std::size_t>(a.head_dim), true);
            q = split(q, static_cast<std::size_t>(a.head_dim), false);
        }
        prepare(q, a.n_heads, layer, Role::attn_q_norm, position);
        auto& keys = keys_.at(static_cast<std::size_t>(a.kv_layer));
        auto& values = values_.at(static_cast<std::size_t>(a.kv_layer));
        if (a.kv_layer == static_cast<int>(index)) {
            Row k = linear(layer, Role::attn_k, Role::attn_k_bias, x);
            values.push_back(values_of(layer, x, k));
            prepare(k, a.n_kv_heads, layer, Role::attn_k_norm, position);
            keys.push_back(k);
        }
        const auto width = static_cast<std::size_t>(a.head_dim);
        const std::size_t first = a.window > 0 && position + 1 > static_cast<std::size_t>(a.window) ? position + 1 - static_cast<std::size_t>(a.window) : 0;
        Row out(q.size());
        for (std::size_t h = 0; h < static_cast<std::size_t>(a.n_heads); ++h) {
            const std::size_t source = h / static_cast<std::size_t>(a.n_heads / a.n_kv_heads) * width;
            Row scores;
            for (std::size_t j = first; j <= position; ++j) {
                double score = 0;
                for (std::size_t i = 0; i < width; ++i) score += q[h * width + i] * keys[j][source + i];
                score *= a.scale;
                scores.push_back(a.softcap > 0 ? a.softcap * std::tanh(score / a.softcap) : score);
            }
            const double top = *std::max_element(scores.begin(), scores.end());
            double sum = 0;
            for (double& score : scores) sum += score = std::exp(score - top);
            for (std::size_t j = first; j <= position; ++j)
                for (std::size_t i = 0; i < width; ++i) out[h * width + i] += scores[j - first] / sum * values[j][source + i];
        }
        for (std::size_t i = 0; i < gate.size(); ++i) out[i] /= 1 + std::exp(-gate[i]);
        return linear(layer, Role::attn_o, Role::attn_o_bias, out);
    }

    // Causal convolution over the last inputs, then SiLU.
    Row convolve(std::size_t index, const LayerSpec& layer, Row u) {
        const auto kernel = static_cast<std::size_t>(layer.delta.conv_kernel);
        auto& history = conv_[index];
        history.push_back(std::move(u));
        Row out;
        for (std::size_t channel = 0; channel < history.back().size(); ++channel) {
            const Row w = row_of(layer[Role::delta_conv], static_cast<std::int64_t>(channel));
            double sum = 0;
            for (std::size_t j = 0; j < kernel && j < history.size(); ++j)
                sum += w.at(kernel - 1 - j) * history[history.size() - 1 - j][channel];
            out.push_back(sum / (1 + std::exp(-sum)));
        }
        return out;
    }

    Row gated_delta(std::size_t index, const Row& x) {
        const LayerSpec& layer = spec_.layers[index];
        const DeltaSpec& d = layer.delta;
        const Row c = convolve(index, layer, product(layer[Role::delta_qkv], x));
        const Row z = product(layer[Role::delta_z], x), b = product(layer[Role::delta_b], x), a = product(layer[Role::delta_a], x);
        const Row a_log = row_of(layer[Role::delta_a_log], 0), dt = row_of(layer[Role::delta_dt_bias], 0);
        const auto dk = static_cast<std::size_t>(d.k_dim), dv = static_cast<std::size_t>(d.v_dim);
        const auto n_k = static_cast<std::size_t>(d.n_k_heads), n_v = static_cast<std::size_t>(d.n_v_heads);
        auto& state = states_[index];
        state.resize(n_v * dk * dv);
        Row out;
        for (std::size_t h = 0; h < n_v; ++h) {
            const std::size_t kh = d.tiled_heads ? h % n_k : h / (n_v / n_k);
            const auto unit = [&](std::size_t first, double scale) {
                double squares = 0;
                for (std::size_t i = 0; i < dk; ++i) squares += c[first + i] * c[first + i];
                Row row;
                for (std::size_t i = 0; i < dk; ++i) row.push_back(c[first + i] / std::sqrt(squares + 1e-6) * scale);
                return row;
            };
            const Row q = unit(kh * dk, 1 / std::sqrt(static_cast<double>(dk))), k = unit((n_k + kh) * dk, 1);
            const double* v = c.data() + 2 * n_k * dk + h * dv;
            const double beta = 1 / (1 + std::exp(-b[h]));
            const double rate = d.a_is_negative_exp ? a_log[h] : -std::exp(a_log[h]);
            const double decay = std::exp(rate * std::log1p(std::exp(a[h] + dt[h])));
            double* s = state.data() + h * dk * dv;
            for (std::size_t i = 0; i < dk * dv; ++i) s[i] *= decay;
            Row o(dv);
            for (std::size_t j = 0; j < dv; ++j) {
                double seen = 0;
                for (std::size_t i = 0; i < dk; ++i) seen += s[i * dv + j] * k[i];
                const double delta = beta * (v[j] - seen);
                for (std::size_t i = 0; i < dk; ++i) {
                    s[i * dv + j] += k[i] * delta;
                    o[j] += s[i * dv + j] * q[i];
                }
            }
            o = norm(o, layer[Role::delta_norm], {NormKind::one_rounding, spec_.norm.eps});
            for (std::size_t j = 0; j < dv; ++j) {
                const double gate = z[h * dv + j];
                out.push_back(o[j] * gate / (1 + std::exp(-gate)));
            }
        }
        return product(layer[Role::delta_out], out);
    }

    static double activate(Activation kind, double x) {
        if (kind == Activation::silu) return x / (1 + std::exp(-x));
        return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    }

    Row gated_mlp(Activation kind, WeightId gate_id, WeightId up_id, WeightId down_id, const Row& x) const {
        Row gate = product(gate_id, x);
        const Row up = product(up_id, x);
        for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = activate(kind, gate[i]) * up[i];
        return product(down_id, gate);
    }

    Row dense(const LayerSpec& layer, const Row& x) const {
        Row gate = linear(layer, Role::ffn_gate, Role::ffn_gate_bias, x);
        const Row up = linear(layer, Role::ffn_up, Role::ffn_up_bias, x);
        for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = activate(layer.feed_forward.activation, gate[i]) * up[i];
        return linear(layer, Role::ffn_down, Role::ffn_down_bias, gate);
    }

    // x is what the experts see, h what Gemma's router sees.
    Row experts(const LayerSpec& layer, const Row& x, const Row& h) const {
        const MoeSpec& moe = layer.feed_forward.moe;
        Row seen = x;
        if (moe.router == RouterKind::gemma4) {
            seen = norm(h, -1, {NormKind::one_rounding, spec_.norm.eps});
            const Row scale = row_of(layer[Role::router_scale], 0);
            for (std::size_t i = 0; i < seen.size(); ++i) seen[i] *= scale[i] / std::sqrt(static_cast<double>(spec_.hidden));
        }
        Row p = product(layer[Role::router], seen);
        const double top = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& value : p) sum += value = std::exp(value - top);
        std::vector<std::size_t> order(p.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::size_t l, std::size_t r) { return p[l] > p[r]; });
        order.resize(static_cast<std::size_t>(moe.per_token));
        double chosen = 0;
        for (const std::size_t e : order) chosen += p[e];
        Row out(x.size());
        for (const std::size_t e : order) {
            double weight = p[e] / (moe.normalise ? chosen : sum);
            if (layer[Role::expert_scale] >= 0) weight *= row_of(layer[Role::expert_scale], 0).at(e);
            const auto id = static_cast<WeightId>(e);
            const Row part = gated_mlp(layer.feed_forward.activation, layer[Role::expert_gate] + id, layer[Role::expert_up] + id,
                                       layer[Role::expert_down] + id, x);
            for (std::size_t i = 0; i < out.size(); ++i) out[i] += weight * part[i];
        }
        if (moe.shared_width > 0) {
            const double gate = product(layer[Role::shared_router], x).front();
            const Row shared = gated_mlp(layer.feed_forward.activation, layer[Role::shared_gate], layer[Role::shared_up], layer[Role::shared_down], x);
            for (std::size_t i = 0; i < out.size(); ++i) out[i] += shared[i] / (1 + std::exp(-gate));
        }
        return out;
    }

    Row feed_forward(const LayerSpec& layer, const Row& h) const {
        const Row x = norm(h, layer[Role::ffn_norm], spec_.norm);
        const MoeSpec& moe = layer.feed_forward.moe;
        if (moe.experts == 0) return dense(layer, x);
        if (!moe.beside_dense) return experts(layer, x, h);
        Row out = norm(dense(layer, x), layer[Role::ffn_post_norm_1], spec_.norm);
        const Row other = norm(experts(layer, norm(h, layer[Role::moe_norm], spec_.norm), h), layer[Role::moe_post_norm], spec_.norm);
        for (std::size_t i = 0; i < out.size(); ++i) out[i] += other[i];
        return out;
    }

    // Gemma 4: (layers, ple_width), from the token's own table and from the embedding.
    Row per_layer_inputs(int id, const Row& x) const {
        const auto width = static_cast<std::ptrdiff_t>(spec_.ple_width);
        const Row own = row_of(spec_.ple_embed, id);
        Row projected = product(spec_.ple_proj, x);
        for (double& value : projected) value /= std::sqrt(static_cast<double>(spec_.hidden));
        Row out;
        for (auto at = projected.begin(); at != projected.end(); at += width)
            for (const double value : norm(Row(at, at + width), spec_.ple_norm, spec_.norm))
                out.push_back((value + own[out.size()] * std::sqrt(static_cast<double>(width))) / std::sqrt(2.0));
        return out;
    }

    void add(Row& x, Row part, WeightId post_norm) const {
        if (post_norm >= 0) part = norm(part, post_norm, spec_.norm);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += part.at(i);
    }

    void step(std::size_t index, Row& x, std::size_t position, const Row& ple) {
        const LayerSpec& layer = spec_.layers[index];
        const Row input = norm(x, layer[Role::attn_norm], spec_.norm);
        add(x, layer.mixer == MixerKind::attention ? attention(index, input, position) : gated_delta(index, input), layer[Role::attn_post_norm]);
        add(x, feed_forward(layer, x), layer[Role::ffn_post_norm]);
        if (!ple.empty()) {
            Row t = product(layer[Role::ple_gate], x);
            for (std::size_t i = 0; i < t.size(); ++i) t[i] = activate(layer.feed_forward.activation, t[i]) * ple[index * t.size() + i];
            add(x, product(layer[Role::ple_proj], t), layer[Role::ple_post_norm]);
        }
        if (layer[Role::layer_scale] >= 0)
            for (double& value : x) value *= row_of(layer[Role::layer_scale], 0).front();
    }

    const BoundModel& model_;
    const ModelSpec& spec_;
    std::vector<std::vector<Row>> keys_, values_, conv_;  // by layer, then position
    std::vector<Row> states_;                             // by layer: (n_v_heads, k_dim, v_dim)
    mutable std::map<WeightId, Row> decoded_;
};

}  // namespace

std::vector<double> forward(const BoundModel& model, const std::vector<int>& ids) { return Forward(model).run(ids); }

}  // namespace forge::test
