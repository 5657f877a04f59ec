#include "jinja/filters.h"

#include <unordered_map>

namespace forge::jinja {

FilterFunction find_filter(std::string_view name) {
    static const std::unordered_map<std::string_view, FilterFunction> table = {
        {"abs", filters::abs},
        {"attr", filters::attr},
        {"batch", filters::batch},
        {"capitalize", filters::capitalize},
        {"center", filters::center},
        {"count", filters::length},
        {"d", filters::default_},
        {"default", filters::default_},
        {"dictsort", filters::dictsort},
        {"e", filters::escape},
        {"escape", filters::escape},
        {"first", filters::first},
        {"float", filters::float_},
        {"forceescape", filters::forceescape},
        {"format", filters::format},
        {"groupby", filters::groupby},
        {"indent", filters::indent},
        {"int", filters::int_},
        {"items", filters::items},
        {"join", filters::join},
        {"last", filters::last},
        {"length", filters::length},
        {"list", filters::list},
        {"lower", filters::lower},
        {"map", filters::map},
        {"max", filters::max},
        {"min", filters::min},
        {"reject", filters::reject},
        {"rejectattr", filters::rejectattr},
        {"replace", filters::replace},
        {"reverse", filters::reverse},
        {"round", filters::round},
        {"safe", filters::safe},
        {"select", filters::select},
        {"selectattr", filters::selectattr},
        {"slice", filters::slice},
        {"sort", filters::sort},
        {"string", filters::string},
        {"sum", filters::sum},
        {"title", filters::title},
        {"tojson", filters::tojson},
        {"trim", filters::trim},
        {"truncate", filters::truncate},
        {"unique", filters::unique},
        {"upper", filters::upper},
        {"urlencode", filters::urlencode},
        {"wordcount", filters::wordcount},
    };
    const auto it = table.find(name);
    return it == table.end() ? nullptr : it->second;
}

}  // namespace forge::jinja
