#include <set>

#include "tempera/base/error.h"
#include "tempera/config/command_line.h"

namespace tempera::config {
namespace {

std::string shell_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'')
      result += "'\\''";
    else
      result += c;
  }
  return result + "'";
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// The words that may follow a flag: `none` for a bool, its choices, or file names.
struct Candidates {
  bool takes_value;
  bool list;
  std::vector<std::string> words;
};

Candidates candidates(Kind kind, const Domain& domain) {
  return {kind != Kind::kBool, is_list(kind), domain.choices};
}

// Collects the flags of a verb and the shell cases that complete their values.
class VerbScript {
 public:
  explicit VerbScript(const VerbDescription& verb) {
    flag("config", {true, false, {}});
    flag("dump-config", {false, false, {}});
    flag("help", {false, false, {}});
    flag("help-all", {false, false, {}});
    for (const Entry& entry : verb.options.entries()) {
      const Candidates values = candidates(entry.kind, entry.declaration.domain);
      flag(entry.name(), values);
      if (!entry.declaration.alias.empty()) flag(entry.declaration.alias, values);
      if (entry.positional) words_.insert(words_.end(), values.words.begin(), values.words.end());
    }
    for (const Elsewhere& other : verb.options.elsewhere())
      flag(other.declaration.name,
           candidates(kind_of(other.declaration.value), other.declaration.domain));
    text_ = concat("    ", shell_quoted(verb.name), ")\n      flags=", shell_quoted(joined(flags_)),
                   "\n      words=", shell_quoted(joined(words_)), "\n      case \"$flag\" in\n",
                   cases_, "      esac ;;\n");
  }

  const std::string& text() const { return text_; }

 private:
  void flag(const std::string& name, const Candidates& values) {
    const std::string dashed = "--" + name;
    if (!seen_.insert(dashed).second) return;
    flags_.push_back(dashed);
    cases_ += concat("        ", dashed, ") takes=", values.takes_value ? 1 : 0,
                     " list=", values.list ? 1 : 0, " values=", shell_quoted(joined(values.words)),
                     " ;;\n");
  }

  std::set<std::string> seen_;
  std::vector<std::string> flags_;
  std::vector<std::string> words_;
  std::string cases_;
  std::string text_;
};

constexpr std::string_view kHead =
    R"(# bash completion of PROGRAM; use: source <(PROGRAM completion bash)
_PROGRAM_complete() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}
  local flags='' words='' flag='' takes='' list='' values=''
  COMPREPLY=()
  if (( COMP_CWORD == 1 )); then
    COMPREPLY=($(compgen -W VERBS -- "$word"))
    return
  fi
  # bash splits `--name=value` at the equals sign.
  if [[ $word == '=' ]]; then
    word='' flag=$before
  elif [[ $before == '=' ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  elif [[ $before == --* ]]; then
    flag=$before
  fi
  case "$verb" in
)";

constexpr std::string_view kTail = R"(  esac
  # A bool has no value behind a blank: what follows is a word of its own, unless after an equals sign.
  if [[ $takes == 0 ]]; then
    if [[ $before == '=' || ${COMP_WORDS[COMP_CWORD]} == '=' ]]; then values='true false'; else takes=''; fi
  fi
  if [[ -n $takes ]]; then
    local kept=''
    if [[ $list == 1 && $word == *,* ]]; then kept=${word%,*},; word=${word##*,}; fi
    if [[ -n $values ]]; then
      COMPREPLY=($(compgen -P "$kept" -W "$values" -- "$word"))
    else
      COMPREPLY=($(compgen -f -- "$word"))
    fi
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$word"))
  elif [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}
complete -o filenames -F _PROGRAM_complete PROGRAM
)";

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from)) {
    result.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return result.append(text);
}

}  // namespace

std::string bash_completion(std::string_view program, std::span<const VerbDescription> verbs) {
  std::vector<std::string> names = {"--help", "--version"};
  std::string cases;
  for (const VerbDescription& verb : verbs) {
    names.push_back(verb.name);
    cases += VerbScript(verb).text();
  }
  return replaced(replaced(kHead, "VERBS", shell_quoted(joined(names))), "PROGRAM", program) +
         cases + replaced(kTail, "PROGRAM", program);
}

}  // namespace tempera::config
