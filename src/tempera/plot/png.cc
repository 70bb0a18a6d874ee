#include <png.h>

#include "tempera/base/error.h"
#include "tempera/plot/raster.h"

namespace tempera::plot {

std::vector<uint8_t> encode_png(const Image& image) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = PNG_FORMAT_RGB;
  TEMPERA_CHECK(image.rgb.size() == image.width * image.height * 3 && !image.rgb.empty(),
                "png: ", image.rgb.size(), " bytes given for ", image.width, " x ", image.height,
                " pixels of 3 bytes");
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  std::vector<uint8_t> bytes(size);
  const int done = png_image_write_to_memory(&header, bytes.data(), &size, /*convert_to_8_bit=*/0,
                                             image.rgb.data(),
                                             /*row_stride=*/0, /*colormap=*/nullptr);
  TEMPERA_CHECK(done != 0, "png: the picture could not be encoded: ", header.message);
  bytes.resize(size);
  return bytes;
}

}  // namespace tempera::plot
