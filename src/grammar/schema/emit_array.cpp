#include <algorithm>

#include "base/error.h"
#include "emitter.h"

namespace forge::grammar {

void SchemaEmitter::emit_array(const Shape& s, NodeId from, NodeId to) {
    builder_.working_on("the schema's minItems, maxItems or prefixItems");
    std::uint64_t prefix = 0;
    for (const ItemsOf& source : s.items) prefix = std::max<std::uint64_t>(prefix, source.prefix.size());
    const bool bounded = s.most_items != no_limit;
    const std::uint64_t counted = std::max<std::uint64_t>({prefix, s.least_items, bounded ? s.most_items : 0, 1});
    if (counted > 50'000) fail(ErrorKind::unsupported, "the schema's minItems or maxItems of {} is too large (at most 50000)", counted);
    NodeId at = builder_.literal(from, "[");   // after `i` items
    for (std::uint64_t i = 0; i < counted; ++i) {
        if (i >= s.least_items) byte(at, ']', to);
        if (bounded && i == s.most_items) return;
        const NodeId next = builder_.node();
        builder_.call(i == 0 ? at : spaced(at, ','), rule_for(item_schemas(s, i)), next);
        at = next;
    }
    byte(at, ']', to);
    if (!bounded) builder_.call(spaced(at, ','), rule_for(item_schemas(s, counted)), at);
}

}  // namespace forge::grammar
