// One function a filter; the table of names is in filters.cpp.
#pragma once

#include "jinja/evaluator.h"

namespace forge::jinja::filters {

#define FORGE_JINJA_FILTER(name) Value name(Evaluator& ev, const Value& input, Arguments& arguments)

// filters_text.cpp
FORGE_JINJA_FILTER(trim);
FORGE_JINJA_FILTER(upper);
FORGE_JINJA_FILTER(lower);
FORGE_JINJA_FILTER(capitalize);
FORGE_JINJA_FILTER(title);
FORGE_JINJA_FILTER(replace);
FORGE_JINJA_FILTER(string);
FORGE_JINJA_FILTER(safe);
FORGE_JINJA_FILTER(escape);
FORGE_JINJA_FILTER(forceescape);
FORGE_JINJA_FILTER(indent);
FORGE_JINJA_FILTER(center);
FORGE_JINJA_FILTER(truncate);
FORGE_JINJA_FILTER(wordcount);
FORGE_JINJA_FILTER(format);
FORGE_JINJA_FILTER(urlencode);
FORGE_JINJA_FILTER(tojson);

// filters_sequence.cpp
FORGE_JINJA_FILTER(length);
FORGE_JINJA_FILTER(first);
FORGE_JINJA_FILTER(last);
FORGE_JINJA_FILTER(list);
FORGE_JINJA_FILTER(join);
FORGE_JINJA_FILTER(reverse);
FORGE_JINJA_FILTER(items);
FORGE_JINJA_FILTER(dictsort);
FORGE_JINJA_FILTER(sort);
FORGE_JINJA_FILTER(unique);
FORGE_JINJA_FILTER(groupby);
FORGE_JINJA_FILTER(batch);
FORGE_JINJA_FILTER(slice);
FORGE_JINJA_FILTER(sum);
FORGE_JINJA_FILTER(min);
FORGE_JINJA_FILTER(max);

// filters_lazy.cpp
FORGE_JINJA_FILTER(map);
FORGE_JINJA_FILTER(select);
FORGE_JINJA_FILTER(reject);
FORGE_JINJA_FILTER(selectattr);
FORGE_JINJA_FILTER(rejectattr);

// filters_value.cpp
FORGE_JINJA_FILTER(default_);
FORGE_JINJA_FILTER(attr);
FORGE_JINJA_FILTER(int_);
FORGE_JINJA_FILTER(float_);
FORGE_JINJA_FILTER(abs);
FORGE_JINJA_FILTER(round);

#undef FORGE_JINJA_FILTER

// value.a.b for the attribute argument "a.b"; a number in it is an index.
Value deep_attribute(Evaluator& ev, const Value& value, const Value& attribute);
// A string in lower case, anything else as it is: how sort and unique compare by default.
Value without_case(Evaluator& ev, const Value& value);

}  // namespace forge::jinja::filters
