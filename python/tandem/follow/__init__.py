# SPDX-License-Identifier: Apache-2.0
"""The reports of a job in the tracker that its user has: `tandem follow`."""
