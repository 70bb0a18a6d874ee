# Writes the page's SCRIPT and STYLE as a source file OUT that holds their bytes; those not given are empty.
function(bytes_of file result)
  set(bytes "")
  if(file)
    file(READ ${file} bytes HEX)
    string(REPEAT "[0-9a-f]" 64 line)
    string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  endif()
  set(${result} "${bytes}" PARENT_SCOPE)
endfunction()

bytes_of("${SCRIPT}" script)
bytes_of("${STYLE}" style)
file(WRITE ${OUT} "#include \"tempera/lens/bundle.h\"

namespace tempera::lens {
namespace {

// A zero ends each.
constexpr unsigned char kScript[] = {${script}0};
constexpr unsigned char kStyle[] = {${style}0};

template <class Bytes>
std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes), sizeof(bytes) - 1};
}

}  // namespace

std::string_view page_script() { return text_of(kScript); }
std::string_view page_style() { return text_of(kStyle); }

}  // namespace tempera::lens
")
