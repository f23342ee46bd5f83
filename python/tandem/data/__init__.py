# SPDX-License-Identifier: Apache-2.0
"""Text becomes tokens: `tandem data prepare`."""
