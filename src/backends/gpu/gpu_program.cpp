#include "gpu_program.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/float16.h"
#include "kernels/attention/attention.h"
#include "kernels/gpu/ways.h"

namespace forge::gpu {
namespace {

// Variants that take a fusion apart: a norm in a launch before its product, queries and keys before attention reads them.
constexpr const char *kNormedBefore = "normed before", *kPreparedBefore = "prepared before";

constexpr std::string_view kPlaneNames[] = {"codes", "high", "scales", "offsets", "super_scales", "super_mins"};

class Binder {
  public:
    Binder(const Program& program, std::span<const Weight> weights, const GpuCacheLayout& cache, const Limits& limits)
        : program_(program), weights_(weights), cache_(cache), common_{program.type, program.max_rows, limits} {}

    GpuProgram run() {
        reserve_arrivals();
        for (std::size_t i = 0; i < program_.launches.size(); ++i) {
            launch_ = &program_.launches[i];
            if (launch_->kernel == "rope_table") {   // angles are precomputed; users look the table up by its place
                remember_rope();
                continue;
            }
            GpuLaunch out;
            out.source = i;
            // What a skipped launch separated stays separated: its successor's barrier covers the same memory.
            out.barrier = launch_->barrier || pending_barrier_;
            pending_barrier_ = false;
            out.output_rows = launch_->output_rows;
            fill(out);
            out_.launches.push_back(std::move(out));
        }
        if (common_.limits.join) join_matvecs();
        if (program_.max_rows <= 8 && program_.vocab > 0 && program_.logits_type == DType::f32) add_pick();
        return std::move(out_);
    }

    std::vector<LaunchVariants> variants(std::size_t index) {
        launch_ = &program_.launches[index];
        std::vector<LaunchVariants> buckets;
        const auto add = [&](int rows, const std::vector<Way>& ways, const char* apart = nullptr) {
            std::vector<std::string> names;
            for (const Way& w : ways) names.push_back(w.name);
            if (apart) names.emplace_back(apart);
            if (names.size() > 1) buckets.push_back({rows, std::move(names)});
        };
        if (launch_->kernel == "matvec" && program_.max_rows <= 8) {   // a prompt has few such products
            MatvecShape s = matmul_shape();
            for_each_bucket([&](int rows) {
                s.x_rows = rows;
                const bool alone = stands_alone(index) && !has("untaken"), fused = (s.norm || s.gated_head > 0) && norm_fits(common_, s);
                add(rows, matvec_ways(common_, fused ? s : without_norm(s), alone), fused && alone ? kNormedBefore : nullptr);
            });
        } else if (launch_->kernel == "gemm") {
            const MatvecShape s = matmul_shape();
            if (matmul2d_fits(common_, s)) add(program_.max_rows, gemm_ways(common_, s, program_.max_rows));
            else for_each_tile_bucket([&](int rows) { add(rows, gemm_ways(common_, s, rows)); });
        } else if (launch_->kernel == "expert_gemm") {
            add(program_.max_rows, expert_gemm_ways(common_, expert_shape()));
        } else if (launch_->kernel == "attention_decode") {
            AttentionShape s = merges() ? merged_shape() : prepares() ? prepare_shape() : attention_shape();
            s.fused = true;
            if (prepares()) add(1, attention_decode_ways(common_, s), kPreparedBefore);
            s.fused = false;
            if (!prepares() || program_.max_rows > 1) add(program_.max_rows, attention_decode_ways(common_, s));
            if (!prepares() && !buckets.empty()) buckets.back().usual = 1;
        } else if (launch_->kernel == "attention_prefill") {
            add(program_.max_rows, attention_prefill_ways(common_, attention_shape()));
        }
        return buckets;
    }

  private:
    // Words for the launches that merge parts; one layer's are free again when the next one's begin.
    void reserve_arrivals() {
        std::int64_t heads = 0;
        for (const Launch& l : program_.launches)
            if (l.number("merges", 0) != 0) heads = std::max(heads, l.integer("n_heads"));
        if (heads == 0) return;
        arrivals_ = out_.scratch_bytes;
        out_.scratch_bytes += (4 * static_cast<std::uint64_t>(heads) * static_cast<std::uint64_t>(program_.max_rows) + 255) / 256 * 256;
    }
    // Buckets of rows that kernels are made for: 1, 2, 4, 8; 16, 32, ... of tiles.
    template <typename Fn>
    void for_each_bucket(Fn&& fn) const {
        const int most = std::min(8, integer("max_rows"));
        for (int rows = 1;; rows *= 2) {
            fn(std::min(rows, most));
            if (rows >= most) break;
        }
    }
    template <typename Fn>
    void for_each_tile_bucket(Fn&& fn) const {
        for (int rows = 16, most = integer("max_rows");; rows *= 2) {
            fn(std::min(rows, most));
            if (rows >= most) break;
        }
    }
    // Nothing is joined with this launch (join_matvecs).
    bool stands_alone(std::size_t index) const {
        const auto joins = [&](std::size_t first, std::size_t second) {
            return common_.limits.join && program_.launches[first].kernel == "matvec" && program_.launches[second].kernel == "matvec" && !program_.launches[second].barrier;
        };
        return !(index > 0 && joins(index - 1, index)) && !(index + 1 < program_.launches.size() && joins(index, index + 1));
    }
    bool wants(const char* variant, int rows) const {
        const std::string* name = launch_->variant(rows);
        return name && *name == variant;
    }
    // The one that the launch names for a bucket of rows, or the default.
    Kernel chosen(const std::vector<Way>& ways, int rows) const {
        if (const std::string* name = launch_->variant(rows))
            for (const Way& w : ways)
                if (w.name == *name) return w.make();
        return ways.front().make();
    }

    // Products of few rows that nothing separates (queries, keys and values, say) become one launch.
    void join_matvecs() {
        std::vector<GpuLaunch> joined;
        for (GpuLaunch& l : out_.launches)
            if (joined.empty() || l.barrier || !join(joined.back(), l)) joined.push_back(std::move(l));
        out_.launches = std::move(joined);
    }
    static bool join(GpuLaunch& a, const GpuLaunch& b) {
        if (a.variants.front().kernels.empty() || a.output_rows != b.output_rows || a.variants.size() != b.variants.size()) return false;
        std::vector<BoundKernel> both;
        for (std::size_t i = 0; i < a.variants.size(); ++i) {
            const Variant &x = a.variants[i], &y = b.variants[i];
            if (x.max_rows != y.max_rows || x.single != y.single || y.kernels.size() != 1) return false;
            const BoundKernel &p = x.kernels.back(), &q = y.kernels[0];
            if (p.kernel.family != "matvec" || q.kernel.family != "matvec" || !can_run_side_by_side(p.kernel, q.kernel)) return false;
            std::optional<BoundKernel> k = joined(p, q);
            if (!k) return false;
            both.push_back(std::move(*k));
        }
        for (std::size_t i = 0; i < both.size(); ++i) a.variants[i].kernels.back() = std::move(both[i]);
        a.beside.push_back(b.source);
        return true;
    }
    // Nothing where there would be more buffers than Metal binds.
    static std::optional<BoundKernel> joined(const BoundKernel& a, const BoundKernel& b) {
        constexpr std::size_t most_buffers = 30;
        BoundKernel k;
        std::vector<std::string> names[2];
        for (int part = 0; part < 2; ++part) {
            const BoundKernel& from = part ? b : a;
            for (const Buffer& buffer : from.buffers) {
                std::size_t at = 0;
                while (at < k.buffers.size() && !(k.buffers[at] == buffer)) ++at;
                if (at == k.buffers.size()) k.buffers.push_back(buffer);
                names[part].push_back("b" + std::to_string(at));
            }
        }
        if (k.buffers.size() > most_buffers) return std::nullopt;
        const Kernel kernels[] = {a.kernel, b.kernel};
        k.kernel = side_by_side(kernels, names);
        return k;
    }
    void add_pick() {
        const std::uint64_t parts = out_.scratch_bytes;
        out_.picked_offset = parts + pick_parts_bytes();
        out_.scratch_bytes = out_.picked_offset + 4 * most_picks;
        for (Kernel& k : pick(common_, program_.vocab)) {
            BoundKernel b{std::move(k), {}};
            for (const Param& p : b.kernel.params)
                b.buffers.push_back(p.name == "step"     ? Buffer{}
                                    : p.name == "logits" ? Buffer{Place::arena, 0, 0, program_.logits.offset}
                                                         : Buffer{Place::scratch, 0, 0, p.name == "parts" ? parts : out_.picked_offset});
            out_.pick.push_back(std::move(b));
        }
    }

    using Fill = void (Binder::*)(GpuLaunch&);

    void fill(GpuLaunch& out) {
        static const std::map<std::string_view, Fill> table = {
            {"embed", &Binder::embed_}, {"norm", &Binder::norm_}, {"matvec", &Binder::matvec_}, {"pack", &Binder::pack_}, {"gemm", &Binder::gemm_},
            {"add", &Binder::add_}, {"qk_prepare", &Binder::qk_prepare_}, {"attention_decode", &Binder::attention_}, {"attention_combine", &Binder::attention_},
            {"attention_prefill", &Binder::attention_}, {"act_mul", &Binder::act_mul_}, {"take_rows", &Binder::take_rows_}, {"scale", &Binder::scale_},
            {"head_gate", &Binder::head_gate_}, {"conv", &Binder::conv_}, {"delta", &Binder::delta_}, {"gated_norm", &Binder::gated_norm_}, {"route", &Binder::route_},
            {"group", &Binder::group_}, {"expert_matvec", &Binder::experts_}, {"expert_gemm", &Binder::experts_}, {"combine", &Binder::combine_}};
        const auto it = table.find(launch_->kernel);
        if (it == table.end())
            fail(ErrorKind::unsupported, "the operation '{}' of this model has no GPU kernel yet; run it with --device cpu", launch_->kernel);
        (this->*it->second)(out);
    }

    // ---- reading the launch
    int integer(std::string_view name) const { return static_cast<int>(launch_->integer(name)); }
    float number(std::string_view name) const { return static_cast<float>(launch_->number(name)); }
    NormFormula formula() const { return static_cast<NormFormula>(integer("norm")); }
    const Weight* weight(std::string_view name) const {
        const Operand* o = launch_->find(name);
        return o ? &weights_[static_cast<std::size_t>(o->buffer.index)] : nullptr;
    }
    bool has(std::string_view name) const { return launch_->find(name) != nullptr; }

    // ---- binding
    Buffer buffer_of(const std::string& name) const {
        if (name == "step") return {};
        if (name == "y" && !launch_->find("y")) return {Place::arena, 0, 0, launch_->operand("query").buffer.offset};   // of a preparation inside attention
        if (name == "arrivals") return {Place::scratch, 0, 0, *arrivals_};
        if (name == "globals") return {Place::constants, static_cast<int>(out_.constants.size()) - 1};
        if (name == "rope_angles") return {Place::rope, rope_at_.at(launch_->operand("rope").buffer.offset)};
        const auto dot = name.find('.');
        const Operand& o = launch_->operand(std::string_view(name).substr(0, dot));
        switch (o.buffer.space) {
            case Space::arena: return {Place::arena, 0, 0, o.buffer.offset};
            case Space::keys: return {Place::cache, 0, 0, cache_.keys(o.buffer.index)};
            case Space::values: return {Place::cache, 0, 0, cache_.values(o.buffer.index)};
            case Space::conv_state: return {Place::cache, 0, 0, cache_.conv(o.buffer.index)};
            case Space::delta_state: return {Place::cache, 0, 0, cache_.delta(o.buffer.index)};
            case Space::weight: {
                const auto plane = std::find(std::begin(kPlaneNames), std::end(kPlaneNames), std::string_view(name).substr(dot + 1));
                const bool experts = launch_->kernel.rfind("expert_", 0) == 0;
                return {Place::plane, o.buffer.index, static_cast<int>(plane - std::begin(kPlaneNames)), 0, experts ? integer("experts") : 1};
            }
            case Space::table: break;
        }
        fail(ErrorKind::internal, "kernel parameter {} of launch {} cannot be bound", name, launch_->kernel);
    }
    // A kernel that knows only of a step's rows takes its outputs for them, where these are what there is: it gets the
    // step's record from their number on. (It may read nothing else of the record.)
    BoundKernel bound(Kernel kernel) const {
        BoundKernel b{std::move(kernel), {}};
        const bool outputs_for_rows = launch_->output_rows && !b.kernel.grid.output_rows;
        if (outputs_for_rows) b.kernel.grid.output_rows = true;
        for (const Param& p : b.kernel.params) {
            b.buffers.push_back(buffer_of(p.name));
            if (outputs_for_rows && b.buffers.back().place == Place::step) b.buffers.back().offset = outputs_word * sizeof(std::int32_t);
        }
        return b;
    }
    // Parameters that are other operands of the launch than their names say.
    BoundKernel bound_as(Kernel kernel, std::initializer_list<std::pair<std::string_view, std::string>> names) const {
        std::vector<Param> params = kernel.params;
        for (Param& p : kernel.params)
            for (const auto& [from, to] : names)
                if (p.name == from) {
                    p.name = to;
                    break;
                }
        BoundKernel b = bound(std::move(kernel));
        b.kernel.params = std::move(params);   // as the kernel's text spells them
        return b;
    }
    void one(GpuLaunch& out, Kernel kernel) const { out.variants.push_back({program_.max_rows, {bound(std::move(kernel))}}); }

    void remember_rope() {
        pending_barrier_ = pending_barrier_ || launch_->barrier;
        const RopeAngles rope{program_.tables[static_cast<std::size_t>(launch_->operand("inv_freq").buffer.index)], integer("half"), number("scale")};
        rope_at_[launch_->operand("table").buffer.offset] = static_cast<int>(out_.ropes.size());
        out_.ropes.push_back(rope);
    }

    // ---- families
    void embed_(GpuLaunch& out) { one(out, embed(common_, *weight("table"), number("scale"))); }
    void norm_(GpuLaunch& out) {
        NormShape s;
        s.width = integer("width");
        s.groups = integer("groups");
        s.weight = has("weight");
        s.residual = has("residual");
        s.output_rows = launch_->output_rows;
        s.formula = formula();
        s.eps = number("eps");
        one(out, norm(common_, s));
    }
    MatvecShape matmul_shape() const {
        MatvecShape s;
        s.w = weight("weight");
        s.w2 = weight("weight2");
        s.norm = has("norm_weight");
        s.bias = has("bias");
        s.formula = formula();
        s.eps = number("eps");
        s.softcap = number("softcap");
        s.epilogue = static_cast<Epilogue>(integer("epilogue"));
        s.act = static_cast<ActKind>(integer("activation"));
        s.f32_out = integer("f32_out") != 0;
        s.output_rows = launch_->output_rows;
        if (const int heads = static_cast<int>(launch_->number("gated_heads", 0)); heads > 0) {
            s.norm = false;
            s.gated_head = static_cast<int>(s.w->cols) / heads;
        }
        s.conv = has("conv_weight");
        if (s.conv) s.conv_kernel = cache_.layer(integer("state_layer")).conv_kernel;
        return s;
    }
    static MatvecShape without_norm(MatvecShape s) {
        s.norm = false;
        s.gated_head = 0;
        return s;
    }
    // A launch that names a variant was found to stand alone, if the variant needs it.
    Kernel matvec_of(const MatvecShape& s) const { return launch_->variant(s.x_rows) ? chosen(matvec_ways(common_, s, true), s.x_rows) : matvec(common_, s); }
    void matvec_(GpuLaunch& out) {
        MatvecShape s = matmul_shape();
        for_each_bucket([&](int rows) {
            s.x_rows = rows;
            Variant v{s.x_rows, {}};
            const bool split = (s.norm || s.gated_head > 0) && (!norm_fits(common_, s) || wants(kNormedBefore, rows));
            if (rows == 1 && has("untaken") && (!s.norm || norm_fits(common_, s))) out.variants.push_back({1, {bound_as(matvec_of(s), {{"x", "untaken"}})}, INT_MAX, true});
            if (split) split_norm(s, v);
            else v.kernels.push_back(bound(matvec_of(s)));
            out.variants.push_back(std::move(v));
        });
    }
    // The norm in a launch of its own, once for all products of the same normed rows.
    void split_norm(MatvecShape s, Variant& v) {
        const auto key = std::make_pair(integer("input_tag"), s.x_rows);
        auto it = normed_.find(key);
        if (it == normed_.end()) {
            NormShape n;
            n.width = static_cast<int>(s.w->cols);
            n.output_rows = s.output_rows;
            n.formula = s.formula;
            n.eps = s.eps;
            n.w = "norm_weight";
            n.y = "scratch";
            it = normed_.emplace(key, out_.scratch_bytes).first;
            out_.scratch_bytes += (static_cast<std::uint64_t>(s.x_rows) * static_cast<std::uint64_t>(s.w->cols) * size_of(program_.type) + 255) / 256 * 256;
            BoundKernel b{s.gated_head > 0 ? gated_norm(common_, static_cast<int>(s.w->cols) / s.gated_head, s.gated_head, s.eps, "norm_weight", "scratch") : norm(common_, n), {}};
            for (const Param& p : b.kernel.params) b.buffers.push_back(p.name == "scratch" ? Buffer{Place::scratch, 0, 0, it->second} : buffer_of(p.name));
            v.kernels.push_back(std::move(b));
        }
        BoundKernel b = bound(matvec_of(without_norm(s)));
        for (std::size_t i = 0; i < b.kernel.params.size(); ++i)
            if (b.kernel.params[i].name == "x") b.buffers[i] = {Place::scratch, 0, 0, it->second};
        v.kernels.push_back(std::move(b));
    }
    // Rows for a product of many rows: normed. (Without a norm nothing is packed.)
    void pack_(GpuLaunch& out) {
        NormShape n;
        n.width = static_cast<int>(weight("weight")->cols);
        n.output_rows = launch_->output_rows;
        n.formula = formula();
        n.eps = number("eps");
        n.w = "norm_weight";
        n.y = "packed";
        one(out, norm(common_, n));
    }
    void gemm_(GpuLaunch& out) {
        const MatvecShape s = matmul_shape();
        if (matmul2d_fits(common_, s)) return one(out, chosen(gemm_ways(common_, s, program_.max_rows), program_.max_rows));
        // A tile for every doubling of the rows; any gives the same bits.
        for_each_tile_bucket([&](int rows) {
            BoundKernel kernel = bound(chosen(gemm_ways(common_, s, rows), rows));
            if (!out.variants.empty() && out.variants.back().kernels[0].kernel.name == kernel.kernel.name) out.variants.back().max_rows = rows;
            else out.variants.push_back({rows, {std::move(kernel)}});
        });
    }
    void add_(GpuLaunch& out) { one(out, add(common_, integer("width"))); }
    void scale_(GpuLaunch& out) { one(out, scale(common_, integer("width"), number("factor"), has("weight"))); }
    void act_mul_(GpuLaunch& out) {
        one(out, act_mul(common_, integer("width"), integer("up_stride"), integer("up_offset"), static_cast<ActKind>(integer("activation"))));
    }
    // Nothing for a step of one row, where its reader takes that.
    void take_rows_(GpuLaunch& out) {
        if (skips_take()) out.variants.push_back({program_.max_rows, {}, INT_MAX, true});
        one(out, take_rows(common_, integer("width")));
    }
    bool skips_take() const {
        for (const Launch& l : program_.launches) {
            const Operand *x = l.find("x"), *untaken = l.find("untaken");
            if (!x || !untaken || x->buffer.offset != launch_->operand("y").buffer.offset || &l < launch_) continue;
            const Weight& w = weights_[static_cast<std::size_t>(l.operand("weight").buffer.index)];
            MatvecShape s;
            s.w = &w;
            return !l.find("norm_weight") || norm_fits(common_, s);
        }
        return false;
    }
    void head_gate_(GpuLaunch& out) { one(out, head_gate(common_, integer("heads"), integer("head_dim"))); }
    DeltaShape delta_shape() const {
        const CacheLayer& l = cache_.layer(integer("state_layer"));
        DeltaShape s;
        s.n_k_heads = l.n_k_heads;
        s.n_v_heads = l.n_v_heads;
        s.k_dim = l.k_dim;
        s.v_dim = l.v_dim;
        s.conv_kernel = l.conv_kernel;
        return s;
    }
    void conv_(GpuLaunch& out) { one(out, conv(common_, delta_shape())); }
    void delta_(GpuLaunch& out) {
        DeltaShape s = delta_shape();
        s.negative_exp = integer("negative_exp") != 0;
        s.tiled_heads = integer("tiled_heads") != 0;
        one(out, delta(common_, s));
    }
    void gated_norm_(GpuLaunch& out) { one(out, gated_norm(common_, integer("heads"), integer("width"), number("eps"))); }
    void route_(GpuLaunch& out) {
        RouteShape s;
        s.experts = integer("experts");
        s.per_token = integer("k");
        s.normalise = integer("normalise") != 0;
        s.round_weights = integer("round_weights") != 0;
        s.scaled = has("expert_scale");
        s.logit_scale = number("logit_scale");
        one(out, route(common_, s));
    }
    void group_(GpuLaunch& out) { one(out, group(common_, integer("experts"), integer("k"))); }
    ExpertShape expert_shape() const {
        ExpertShape s;
        s.w = weight("weight");
        s.w2 = weight("weight2");
        s.experts = integer("experts");
        s.per_token = integer("k");
        s.per_choice = integer("x_per_pair") != 0;
        s.act = static_cast<ActKind>(integer("activation"));
        for (const Weight* w : {s.w, s.w2})
            for (int e = 0; w && e < s.experts; ++e) s.scaled = s.scaled || w[e].global_scale != w->global_scale;
        return s;
    }
    void experts_(GpuLaunch& out) {
        const ExpertShape s = expert_shape();
        if (s.scaled) {
            std::vector<float> globals;
            for (const Weight* w : {s.w, s.w2})
                for (int e = 0; w && e < s.experts; ++e) globals.push_back(w[e].global_scale);
            out_.constants.push_back(std::move(globals));
        }
        one(out, launch_->kernel == "expert_matvec" ? expert_matvec(common_, s) : chosen(expert_gemm_ways(common_, s), program_.max_rows));
    }
    void combine_(GpuLaunch& out) {
        CombineShape s;
        s.per_token = integer("k");
        s.width = integer("width");
        s.experts = integer("experts");
        s.table = has("table");
        s.shared = has("shared");
        s.residual = has("residual");
        one(out, combine(common_, s));
    }
    AttentionShape attention_shape() const {
        AttentionShape s;
        s.n_heads = integer("n_heads");
        s.n_kv_heads = integer("n_kv_heads");
        s.head_dim = integer("head_dim");
        s.capacity = cache_.capacity();
        s.gated = launch_->kernel == "attention_combine" && launch_->number("gates", 0) != 0;
        s.scale = static_cast<float>(launch_->number("scale", 1));
        s.softcap = static_cast<float>(launch_->number("softcap", 0));
        s.window = static_cast<int>(launch_->number("window", 0));
        return s;
    }
    void qk_prepare_(GpuLaunch& out) { one(out, qk_prepare(common_, prepare_shape())); }
    AttentionShape prepare_shape() const {
        AttentionShape s = attention_shape();
        s.writes = has("k");
        s.q_norm = has("q_norm");
        s.k_norm = has("k_norm");
        s.gated = integer("gated") != 0;
        s.v_norm = integer("v_norm") != 0;
        s.v_from_k = has("k") && !has("v");
        s.formula = formula();
        s.eps = number("eps");
        s.rope_half = integer("rope_half");
        return s;
    }
    bool prepares() const { return launch_->kernel == "attention_decode" && launch_->number("prepares", 0) != 0; }
    AttentionShape prepared_shape(bool fused) const {
        AttentionShape s = prepare_shape();
        s.fused = fused;
        return s;
    }
    Kernel decode_of(const AttentionShape& s, int rows) const { return launch_->variant(rows) ? chosen(attention_decode_ways(common_, s), rows) : attention_decode(common_, s); }
    // A step of one row prepares what it reads; more rows see each other's keys, so these are made first.
    void attention_and_prepare(GpuLaunch& out) {
        const bool one_fused = !wants(kPreparedBefore, 1);
        if (one_fused) out.variants.push_back({1, {bound(decode_of(prepared_shape(true), 1))}});
        if (one_fused && program_.max_rows == 1) return;
        const AttentionShape s = prepared_shape(false);
        BoundKernel prepare = bound(qk_prepare(common_, s)), decode = bound(decode_of(s, program_.max_rows));
        const Buffer query{Place::arena, 0, 0, launch_->operand("query").buffer.offset};
        for (std::size_t i = 0; i < decode.buffers.size(); ++i)
            if (decode.kernel.params[i].name == "q") decode.buffers[i] = query;
        out.variants.push_back({program_.max_rows, {std::move(prepare), std::move(decode)}});
    }
    bool merges() const { return launch_->kernel == "attention_decode" && launch_->number("merges", 0) != 0; }
    AttentionShape merged_shape() const {
        AttentionShape s = prepares() ? prepare_shape() : attention_shape();
        s.gates = has("gates");
        s.merges = true;
        return s;
    }
    // Steps of short contexts merge parts where these are made, longer ones in a launch of its own.
    void attention_and_merge(GpuLaunch& out) {
        AttentionShape s = merged_shape();
        const bool gates = s.gates, one_fused = prepares() && !wants(kPreparedBefore, 1);
        const int reach = attention_merged(s.capacity, s.window);
        AttentionShape merging = s;
        merging.gated = gates;
        const auto add = [&](int rows, std::vector<BoundKernel> kernels) {
            if (!s.merges) kernels.push_back(bound_as(attention_combine(common_, merging), {{"y", "out"}, {"q", "gates"}}));
            out.variants.push_back({rows, std::move(kernels), s.merges ? reach : INT_MAX});
        };
        for (const bool here : {true, false}) {
            if (!here && reach == INT_MAX) break;
            s.merges = here;
            s.fused = true;
            if (one_fused) add(1, {bound(decode_of(s, 1))});
            if (one_fused && program_.max_rows == 1) continue;
            s.fused = false;
            std::vector<BoundKernel> apart;
            if (prepares()) apart.push_back(bound(qk_prepare(common_, s)));
            apart.push_back(prepares() ? bound_as(decode_of(s, program_.max_rows), {{"q", "query"}}) : bound(decode_of(s, program_.max_rows)));
            add(program_.max_rows, std::move(apart));
        }
    }
    void attention_(GpuLaunch& out) {
        if (merges()) return attention_and_merge(out);
        if (prepares()) return attention_and_prepare(out);
        const AttentionShape s = attention_shape();
        one(out, launch_->kernel == "attention_combine"  ? attention_combine(common_, s)
                 : launch_->kernel == "attention_decode" ? decode_of(s, program_.max_rows)
                                                         : chosen(attention_prefill_ways(common_, s), program_.max_rows));
    }

    const Program& program_;
    std::span<const Weight> weights_;
    const GpuCacheLayout& cache_;
    Common common_;
    const Launch* launch_ = nullptr;
    GpuProgram out_;
    bool pending_barrier_ = false;
    std::optional<std::uint64_t> arrivals_;                      // scratch offset
    std::map<std::uint64_t, int> rope_at_;                       // arena offset -> rope
    std::map<std::pair<int, int>, std::uint64_t> normed_;        // tag, rows -> scratch offset
};

}  // namespace

int longest_position(const StepRows& step) { return step.m > 0 ? *std::max_element(step.positions, step.positions + step.m) : 0; }

std::vector<Kernel> GpuProgram::kernels() const {
    std::vector<Kernel> all;
    for (const GpuLaunch& l : launches)
        for (const Variant& v : l.variants)
            for (const BoundKernel& k : v.kernels) all.push_back(k.kernel);
    for (const BoundKernel& k : pick) all.push_back(k.kernel);
    return all;
}

StepCounts GpuProgram::counts() const {
    StepCounts c{0, 1, 0, 0, static_cast<int>(pick.size())};
    for (const GpuLaunch& l : launches) {
        const Variant &first = variant_for(l.variants, 1, 0, 1), &last = variant_for(l.variants, 1, INT_MAX - 1, 1);
        const auto kernels = static_cast<int>(first.kernels.size()), longer = static_cast<int>(last.kernels.size()) - kernels;
        c.launches += kernels;
        c.stages += (l.barrier ? 1 : 0) + kernels - 1;
        c.longer += longer;
        if (longer > 0 && (c.short_context == 0 || first.positions < c.short_context)) c.short_context = first.positions;
    }
    return c;
}

GpuProgram bind_program(const Program& program, std::span<const Weight> weights, const GpuCacheLayout& cache, const Limits& limits) {
    return Binder(program, weights, cache, limits).run();
}

std::vector<LaunchVariants> launch_variants(const Program& program, std::size_t launch, std::span<const Weight> weights, const GpuCacheLayout& cache,
                                            const Limits& limits) {
    return Binder(program, weights, cache, limits).variants(launch);
}

std::vector<float> rope_angles(const RopeAngles& rope, int capacity, DType type) {
    std::vector<float> angles(static_cast<std::size_t>(capacity) * 2 * static_cast<std::size_t>(rope.half));
    std::vector<std::int32_t> positions(static_cast<std::size_t>(capacity));
    for (int i = 0; i < capacity; ++i) positions[static_cast<std::size_t>(i)] = i;
    StepRows every;
    every.m = capacity;
    every.positions = positions.data();
    RopeTableParams p;
    p.inv_freq = rope.inv_freq.data();
    p.half = rope.half;
    p.scale = rope.scale;
    p.type = type;
    p.table = angles.data();
    CpuWorker worker;
    rope_table_kernel(p, Isa::plain).fn(&p, every, 0, capacity, worker);
    return angles;
}

const Plane& plane_of(const Weight& w, int plane) {
    const Plane* const planes[] = {&w.codes, &w.codes_high, &w.scales, &w.offsets, &w.super_scales, &w.super_mins};
    return *planes[plane];
}

std::size_t plane_bytes(const Weight& w, int plane) {
    const Plane& p = plane_of(w, plane);
    return p.data ? p.stride * static_cast<std::size_t>(w.rows) : 0;
}

void outputs_to_floats(const std::byte* in, DType type, std::span<float> out) {
    for (float& x : out) {
        if (type == DType::f32) {
            std::memcpy(&x, in, sizeof x);
            in += sizeof x;
            continue;
        }
        std::uint16_t bits;
        std::memcpy(&bits, in, sizeof bits);
        in += sizeof bits;
        x = type == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
    }
}

}  // namespace forge::gpu
